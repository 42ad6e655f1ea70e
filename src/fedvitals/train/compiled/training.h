/* A client's training from its first step to its last. Included once for each set of instructions. */

#include "lanes.h"
#include "dense.h"
#include "loss.h"
#include "pictures.h"

/* One layer's weights between a flat row, as torch has them, and a packed one. */
#define EACH_WEIGHT(hand_over)                                                                                          \
    if (layer->kind == DENSE) {                                                                                        \
        int64_t wide = padded(layer->out);                                                                             \
        for (int64_t o = 0; o < layer->out; o++)                                                                       \
            for (int64_t i = 0; i < layer->in; i++) hand_over(o * layer->in + i, i * wide + o);                        \
    } else {                                                                                                           \
        int64_t k = layer->kernel, segment = padded(k * layer->in);                                                    \
        for (int64_t o = 0; o < layer->out; o++)                                                                       \
            for (int64_t i = 0; i < layer->in; i++)                                                                    \
                for (int64_t line = 0; line < k; line++)                                                               \
                    for (int64_t column = 0; column < k; column++)                                                     \
                        hand_over(((o * layer->in + i) * k + line) * k + column,                                       \
                                  (o * k + line) * segment + column * layer->in + i);                                  \
    }

static void NAMED(pack)(const Program *program, const Room *room, const float *flat, float *packed) {
    memset(packed, 0, 4 * room->packed);
    for (int64_t l = 0; l < program->count; l++) {
        const Layer *layer = program->layers + l;
        float *to = packed + room->stages[l].first, *bias = to + weights_of(layer) - padded(layer->out);
        const float *from = flat + layer->weight;
#define TAKE(flat_at, packed_at) to[packed_at] = from[flat_at]
        EACH_WEIGHT(TAKE)
        if (layer->bias >= 0) memcpy(bias, flat + layer->bias, 4 * layer->out);
    }
}

/* flat = packed - minus; minus may be NULL. */
static void NAMED(unpack)(const Program *program, const Room *room, const float *packed, const float *minus,
                          float *flat) {
    for (int64_t l = 0; l < program->count; l++) {
        const Layer *layer = program->layers + l;
        int64_t first = room->stages[l].first, bias = weights_of(layer) - padded(layer->out);
        const float *from = packed + first, *less = minus ? minus + first : 0;
        float *to = flat + layer->weight;
#define GIVE(flat_at, packed_at) to[flat_at] = less ? from[packed_at] - less[packed_at] : from[packed_at]
        EACH_WEIGHT(GIVE)
        for (int64_t o = 0; layer->bias >= 0 && o < layer->out; o++)
            flat[layer->bias + o] = less ? from[bias + o] - less[bias + o] : from[bias + o];
    }
}

static double NAMED(squares)(const float *values, int64_t count) {
    double total = 0.0;
    for (int64_t i = 0; i < count; i += LANES) {
        lanes some = NAMED(load)(values + i);
        some *= some;
        float sum = 0.0f;
        UNROLLED for (int j = 0; j < LANES; j++) sum += some[j];
        total += sum;
    }
    return total;
}

/* The norm of a tensor that lies packed: rows of so many values, each in whole lanes. What fills a row up is no value. */
static float NAMED(norm)(const float *values, int64_t rows, int64_t count) {
    int64_t left = (count - 1) % LANES + 1, held = 0;
    marks last = COUNTED < (int32_t)left;
    lanes zeros = {}, sums = zeros;
    double total = 0.0;
    if (rows * count == 1) return fabsf(values[0]);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < count; i += LANES, values += LANES) {
            lanes some = NAMED(load)(values);
            if (i + LANES > count) some = NAMED(chosen)(last, some, zeros);
            sums += some * some;
            if (++held % 32) continue; /* so many are added up in single precision */
            UNROLLED for (int j = 0; j < LANES; j++) total += sums[j];
            sums = zeros;
        }
    UNROLLED for (int j = 0; j < LANES; j++) total += sums[j];
    return sqrtf((float)total);
}

/* Of each tensor of the gradient; gives where the next ones go. */
static float *NAMED(norms)(const Program *program, const Room *room, float *norms) {
    for (int64_t l = 0; l < program->count; l++) {
        const Layer *layer = program->layers + l;
        const float *values = room->gradient + room->stages[l].first;
        if (layer->kind == DENSE) *norms++ = NAMED(norm)(values, layer->in, layer->out);
        else *norms++ = NAMED(norm)(values, (int64_t)layer->out * layer->kernel, (int64_t)layer->kernel * layer->in);
        if (layer->bias >= 0) *norms++ = NAMED(norm)(values + weights_of(layer) - padded(layer->out), 1, layer->out);
    }
    return norms;
}

/* A step of SGD, as train/sgd.py has it. */
static void NAMED(move)(const Program *program, const Room *room, float lr) {
    float *weights = room->weights, *gradient = room->gradient, *velocity = room->velocity;
    const float *received = room->received;
    float shrunk = 1.0f, proximal = program->proximal, decay = program->weight_decay, momentum = program->momentum;
    int64_t count = room->packed;
    for (int64_t i = 0; proximal != 0.0f && i < count; i += LANES)
        NAMED(store)(gradient + i, NAMED(load)(gradient + i) +
                                       (NAMED(load)(weights + i) - NAMED(load)(received + i)) * proximal);
    if (program->clip != 0.0f) {
        shrunk = program->clip / ((float)sqrt(NAMED(squares)(gradient, count)) + 1e-6f);
        if (shrunk > 1.0f) shrunk = 1.0f;
    }
    for (int64_t i = 0; i < count; i += LANES) {
        lanes weight = NAMED(load)(weights + i), step = NAMED(load)(gradient + i);
        if (program->clip != 0.0f) step *= shrunk;
        if (decay != 0.0f) step += weight * decay;
        if (momentum != 0.0f) {
            step += NAMED(load)(velocity + i) * momentum;
            NAMED(store)(velocity + i, step);
        }
        NAMED(store)(weights + i, weight - step * lr);
    }
}

static float NAMED(forward_and_backward)(const Program *program, const Room *room, int64_t features, int64_t rows) {
    const Stage *stages = room->stages;
    int64_t last = program->count - 1;
    for (int64_t l = 0; l <= last; l++) {
        const Layer *layer = program->layers + l;
        const float *x = l ? stages[l - 1].y : room->x;
        int64_t x_row = l ? stages[l - 1].y_row : features;
        const float *weights = room->weights + stages[l].first;
        if (layer->kind == DENSE) NAMED(dense_forward)(layer, weights, rows, x, x_row, stages[l].y);
        else NAMED(picture_forward)(layer, stages + l, weights, rows, x, x_row);
    }
    float *scores = stages[last].y;
    float loss = NAMED(loss)(scores, program->classes, room->y, rows);
    for (int64_t l = last; l >= 0; l--) {
        const Layer *layer = program->layers + l;
        const float *x = l ? stages[l - 1].y : room->x, *weights = room->weights + stages[l].first;
        int64_t x_row = l ? stages[l - 1].y_row : features;
        float *dy = l == last ? scores : stages[l].dy, *dx = l ? stages[l - 1].dy : 0;
        float *gradient = room->gradient + stages[l].first;
        if (layer->kind == PICTURE) {
            memset(gradient, 0, 4 * weights_of(layer));
            NAMED(picture_backward)(layer, stages + l, weights, gradient, rows, dx, x_row);
            continue;
        }
        if (layer->relu) NAMED(passed)(dy, stages[l].y, rows * padded(layer->out));
        NAMED(dense_gradient)(layer, gradient, rows, x, x_row, dy);
        if (l) NAMED(dense_below)(layer, weights, rows, dy, dx, x_row, room->turned);
    }
    return loss;
}

static void NAMED(train_client)(Cohort *cohort, const Room *room, const Client *client) {
    const Program *program = cohort->program;
    int64_t features = cohort->features, step = 0, sampled = 0;
    float *norms = client->norms;
    memcpy(room->weights, room->received, 4 * room->packed);
    memset(room->velocity, 0, 4 * room->packed);
    for (int64_t epoch = 0; epoch < program->epochs; epoch++) {
        const int64_t *order = client->orders + epoch * cohort->order_length;
        for (int64_t start = 0; start < client->usable; start += program->batch, step++) {
            if (__atomic_load_n(&cohort->stop, __ATOMIC_RELAXED)) return;
            int64_t left = client->usable - start, rows = left < program->batch ? left : program->batch;
            for (int64_t r = 0; r < rows; r++) {
                int64_t number = client->numbers ? client->numbers[order[start + r]] : order[start + r];
                memcpy(room->x + r * features, client->x + number * features, 4 * features);
                room->y[r] = client->y[number];
            }
            client->losses[step] = NAMED(forward_and_backward)(program, room, features, rows);
            if (sampled < client->samples && client->wanted[sampled] == step) {
                if (norms) norms = NAMED(norms)(program, room, norms);
                else NAMED(unpack)(program, room, room->gradient, 0, client->gradients + sampled * program->size);
                sampled++;
            }
            NAMED(move)(program, room, client->lr);
        }
    }
    NAMED(unpack)(program, room, room->weights, room->received, client->update);
}

static void NAMED(train)(Cohort *cohort, void *base) {
    Room room;
    memset(base, 0, cut_up(cohort->program, cohort->features, base, &room)); /* borders of pictures are zero */
    NAMED(pack)(cohort->program, &room, cohort->received, room.received);
    for (;;) {
        int64_t next = __atomic_fetch_add(&cohort->next, 1, __ATOMIC_RELAXED);
        if (next >= cohort->count) return;
        NAMED(train_client)(cohort, &room, cohort->clients + next);
    }
}
