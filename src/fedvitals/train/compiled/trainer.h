/* What Python and C tell each other: see library.py, which has the same structures. */

#include <stdint.h>

enum { DENSE = 0, PICTURE = 1 };

typedef struct {
    int32_t kind;             /* DENSE, or PICTURE: a convolution, and what follows it */
    int32_t in, out;          /* features, or channels */
    int32_t relu;             /* whether what comes out is rectified */
    int32_t pool;             /* whether the largest of each four neighbours is taken (before relu: both keep the order) */
    int32_t kernel, pad;      /* of a convolution */
    int32_t height, width;    /* of what goes in */
    int64_t weight, bias;     /* where they lie in a flat row; a bias of -1 is none */
} Layer;

typedef struct {
    const Layer *layers;
    int64_t count;            /* of layers */
    int64_t size;             /* of a flat row of weights */
    int64_t classes;
    int64_t batch;            /* rows of a step, at most */
    int64_t epochs;
    float momentum, weight_decay, clip, proximal;
} Program;

typedef struct {              /* one client */
    const float *x;           /* rows, one after the other */
    const int64_t *y;
    const int64_t *numbers;   /* of its rows among those; NULL: they are its own, from the first on */
    const int64_t *orders;    /* [epochs, order_length]: the order in which it goes through its rows */
    int64_t usable;           /* how many of an order it gets to */
    int64_t samples;          /* how many steps' gradients are wanted */
    const int64_t *wanted;    /* which, in ascending order */
    float *gradients;         /* [samples, size]: they go here */
    float *norms;             /* [samples, tensors]: where not NULL, only their norms do, a layer's bias after its weight */
    float *update;            /* [size]: what it learnt goes here */
    float *losses;            /* one a step */
    float lr;
} Client;

typedef struct {
    const Program *program;
    const float *received;    /* [size]: what all of them begin with */
    Client *clients;
    int64_t count;
    int64_t order_length;
    int64_t features;         /* of a row */
    int64_t next;             /* the next client that nobody trains yet; threads share it */
    int32_t stop;             /* set to end early */
} Cohort;
