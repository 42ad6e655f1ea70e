/* Where everything lies while a thread trains: one piece of memory, cut up the same way whenever it is asked for. */

enum { MOST_LAYERS = 64 };

typedef struct {
    int64_t first;                 /* where its weights begin in a packed row */
    int64_t y_row;                 /* how far apart the rows of what comes out are */
    float *y, *dy;                 /* [batch, y_row]: what comes out, and its gradient */
    /* of pictures */
    int64_t wide, tall;            /* with the border */
    int64_t out_tall, out_wide;    /* of the convolution */
    int64_t y_tall, y_wide;        /* after pooling */
    int64_t length;                /* of a plane of the convolution, as the kernels pass over it */
    int64_t segment;               /* a row of a kernel over all channels, in whole lanes */
    int64_t plane, shown_row;      /* sizes */
    float *planes;                 /* [in, plane]: one picture, channel by channel */
    float *shown;                  /* [batch, shown_row]: all pictures, pixel by pixel */
    float *convolved;              /* [out, length]: one picture */
    float *kernels;                /* [in, kernel, kernel, out] */
    float *below;                  /* [shown_row]: the gradient of one picture */
    int32_t *winners;              /* [batch, y_row]: which place of the convolution each value is from */
    float *strength;               /* the places of one channel whose gradient is not zero: the gradient */
    int32_t *place;                /* and where */
} Stage;

typedef struct {
    Stage stages[MOST_LAYERS];
    int64_t packed;                /* length of a row of weights, as they lie here */
    float *received, *weights, *gradient, *velocity;
    float *x;                      /* [batch, features] */
    float *turned;                 /* a layer's weights the other way round */
    int64_t *y;                    /* [batch]: the right classes */
} Room;

typedef struct {
    char *base;
    int64_t used;
} Cutter;

static void *cut(Cutter *from, int64_t count) { /* of 4 bytes */
    void *piece = from->base + from->used;
    from->used += (4 * count + 63) / 64 * 64;
    return piece;
}

static int64_t channels_of(const Layer *layer) { return (layer->out + 7) / 8 * 8; } /* as kernels are packed */

static int64_t weights_of(const Layer *layer) { /* as they are packed, bias included */
    if (layer->kind == DENSE) return (layer->in + 1) * padded(layer->out);
    return (int64_t)layer->out * layer->kernel * padded((int64_t)layer->kernel * layer->in) + padded(layer->out);
}

static void cut_picture(Stage *stage, const Layer *layer, int64_t batch, Cutter *from) {
    int64_t k = layer->kernel;
    stage->wide = layer->width + 2 * layer->pad, stage->tall = layer->height + 2 * layer->pad;
    stage->out_wide = stage->wide - k + 1, stage->out_tall = stage->tall - k + 1;
    stage->y_wide = layer->pool ? stage->out_wide / 2 : stage->out_wide;
    stage->y_tall = layer->pool ? stage->out_tall / 2 : stage->out_tall;
    stage->length = (stage->out_tall * stage->wide + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
    stage->segment = padded(k * layer->in);
    stage->plane = padded(stage->length + (k - 1) * stage->wide + k + 2 * LANES);
    stage->shown_row = padded(stage->tall * stage->wide * layer->in) + stage->segment + 2 * LANES;
    if (layer->in == 1 && stage->shown_row < stage->plane) stage->shown_row = stage->plane; /* they are the same then */
    stage->y_row = padded(layer->out * stage->y_tall * stage->y_wide) + LANES;
    stage->planes = cut(from, layer->in * stage->plane);
    stage->shown = cut(from, batch * stage->shown_row);
    stage->convolved = cut(from, channels_of(layer) * stage->length + 4 * LANES);
    stage->kernels = cut(from, layer->in * k * k * channels_of(layer));
    stage->below = cut(from, stage->shown_row);
    stage->winners = cut(from, batch * stage->y_row);
    stage->strength = cut(from, stage->y_tall * stage->y_wide);
    stage->place = cut(from, stage->y_tall * stage->y_wide);
}

/* Cut `base` into a room; the bytes that it takes. */
static int64_t cut_up(const Program *program, int64_t features, void *base, Room *room) {
    Cutter from = {base, 0};
    int64_t packed = 0, turned = 0, batch = program->batch, before = features;
    for (int64_t l = 0; l < program->count; l++) {
        const Layer *layer = program->layers + l;
        Stage *stage = room->stages + l;
        stage->first = packed;
        packed += weights_of(layer);
        stage->y_row = padded(layer->out);
        if (layer->kind == PICTURE) cut_picture(stage, layer, batch, &from);
        stage->y = cut(&from, batch * stage->y_row);
        stage->dy = cut(&from, batch * stage->y_row);
        if (layer->kind == DENSE && padded(layer->out) * before > turned) turned = padded(layer->out) * before;
        before = stage->y_row;
    }
    room->packed = packed;
    room->received = cut(&from, packed), room->weights = cut(&from, packed);
    room->gradient = cut(&from, packed), room->velocity = cut(&from, packed);
    room->x = cut(&from, batch * features);
    room->turned = cut(&from, turned + LANES);
    room->y = cut(&from, 2 * batch);
    return from.used;
}
