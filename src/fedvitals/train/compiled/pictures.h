/* Convolutions with what follows them, one picture at a time.
 *
 * Forward, kernels pass over planes with a border as over one long row: the few sums that straddle two lines are never
 * looked at. Backward, a gradient reaches only the place that won among its four neighbours, and only if it was above
 * zero: what is not reached is not multiplied.
 */

/* Kernels [out, kernel, (kernel, in)] as the forward pass takes them: [in, kernel, kernel, out]. */
static void NAMED(pack_kernels)(const Layer *layer, const Stage *stage, const float *weights) {
    int64_t k = layer->kernel, channels = channels_of(layer);
    for (int64_t o = 0; o < layer->out; o++)
        for (int64_t line = 0; line < k; line++) {
            const float *from = weights + (o * k + line) * stage->segment;
            for (int64_t column = 0; column < k; column++)
                for (int64_t i = 0; i < layer->in; i++)
                    stage->kernels[((i * k + line) * k + column) * channels + o] = from[column * layer->in + i];
        }
}

/* Lay out one picture [in, height, width] inside its border: by channel, and by pixel. */
static void NAMED(lay_out)(const Layer *layer, const Stage *stage, const float *picture, float *shown) {
    int64_t in = layer->in, inside = layer->pad * stage->wide + layer->pad;
    for (int64_t i = 0; i < in; i++)
        for (int64_t line = 0; line < layer->height; line++) {
            const float *from = picture + (i * layer->height + line) * layer->width;
            float *plane = in == 1 ? shown : stage->planes + i * stage->plane;
            int64_t at = inside + line * stage->wide;
            memcpy(plane + at, from, 4 * layer->width);
            if (in > 1)
                for (int64_t column = 0; column < layer->width; column++) shown[(at + column) * in + i] = from[column];
        }
}

/* Sums for `rows` channels at 16 * wide places. */
INLINE void NAMED(pass)(const int rows, const int wide, const Layer *layer, const Stage *stage, const float *planes,
                        int64_t channel, int64_t at) {
    int64_t channels = channels_of(layer), k = layer->kernel;
    const float *kernels = stage->kernels + channel;
    lanes sums[TILE_ROWS][TILE_WIDE];
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < wide; v++) sums[r][v] = (lanes){};
    for (int64_t i = 0; i < layer->in; i++)
        for (int64_t line = 0; line < k; line++) {
            const float *x = planes + i * stage->plane + line * stage->wide + at;
            for (int64_t column = 0; column < k; column++, kernels += channels, x++) {
                lanes seen[TILE_WIDE];
                UNROLLED for (int v = 0; v < wide; v++) seen[v] = NAMED(load)(x + v * LANES);
                UNROLLED for (int r = 0; r < rows; r++) {
                    lanes weight = NAMED(spread)(kernels[r]);
                    UNROLLED for (int v = 0; v < wide; v++) sums[r][v] += weight * seen[v];
                }
            }
        }
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < wide; v++)
            NAMED(store)(stage->convolved + (channel + r) * stage->length + at + v * LANES, sums[r][v]);
}

static void NAMED(convolve)(const Layer *layer, const Stage *stage, const float *planes) {
    for (int64_t at = 0; at < stage->length; at += TILE_WIDE * LANES) {
        int64_t channel = 0, channels = (layer->out + 3) / 4 * 4;
        for (; channel + TILE_ROWS <= channels; channel += TILE_ROWS)
            NAMED(pass)(TILE_ROWS, TILE_WIDE, layer, stage, planes, channel, at);
        for (; channel < channels; channel += 4) NAMED(pass)(4, TILE_WIDE, layer, stage, planes, channel, at);
    }
}

/* Keep the larger, and where it was; of equals the first, and NaN before all, as torch has it. */
INLINE void NAMED(keep_larger)(lanes *best, marks *where, lanes other, marks other_where) {
    marks better = (other > *best) | (other != other);
    *best = NAMED(chosen)(better, other, *best);
    *where = (other_where & better) | (*where & ~better);
}

#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)

INLINE void NAMED(largest_of_four)(const float *line, int64_t wide, lanes *best, marks *where) {
    lanes a = NAMED(load)(line), b = NAMED(load)(line + LANES);
    lanes c = NAMED(load)(line + wide), d = NAMED(load)(line + wide + LANES);
    *best = EVEN(a, b), *where = 2 * COUNTED;
    NAMED(keep_larger)(best, where, ODD(a, b), 2 * COUNTED + 1);
    NAMED(keep_larger)(best, where, EVEN(c, d), 2 * COUNTED + (int32_t)wide);
    NAMED(keep_larger)(best, where, ODD(c, d), 2 * COUNTED + (int32_t)wide + 1);
}

/* From planes of the convolution to what comes out. Whole lanes are written: what is too much, the next line covers. */
static void NAMED(gather_outputs)(const Layer *layer, const Stage *stage, const float *bias, float *y,
                                  int32_t *winners) {
    int64_t step = layer->pool ? 2 : 1;
    for (int64_t o = 0; o < layer->out; o++)
        for (int64_t line = 0; line < stage->y_tall; line++)
            for (int64_t column = 0; column < stage->y_wide; column += LANES) {
                int64_t at = step * (line * stage->wide + column);
                int64_t to = (o * stage->y_tall + line) * stage->y_wide + column;
                const float *from = stage->convolved + o * stage->length + at;
                lanes best = NAMED(load)(from);
                marks where = COUNTED;
                if (layer->pool) NAMED(largest_of_four)(from, stage->wide, &best, &where);
                best += bias[o];
                if (layer->relu) best = NAMED(chosen)(best < 0.0f, (lanes){}, best);
                NAMED(store)(y + to, best);
                *(loose_marks *)(winners + to) = where + (int32_t)at;
            }
}

static void NAMED(picture_forward)(const Layer *layer, const Stage *stage, const float *weights, int64_t rows,
                                   const float *x, int64_t x_row) {
    const float *bias = weights + layer->out * layer->kernel * stage->segment;
    NAMED(pack_kernels)(layer, stage, weights);
    for (int64_t r = 0; r < rows; r++) {
        float *shown = stage->shown + r * stage->shown_row;
        NAMED(lay_out)(layer, stage, x + r * x_row, shown);
        NAMED(convolve)(layer, stage, layer->in == 1 ? shown : stage->planes);
        NAMED(gather_outputs)(layer, stage, bias, stage->y + r * stage->y_row, stage->winners + r * stage->y_row);
    }
}

/* The gradient of some lines and lanes of one channel's kernels. */
INLINE void NAMED(add_seen)(const int lines, const int wide, int64_t count, const float *strength,
                            const int32_t *place, const float *shown, int64_t in, int64_t row, float *gradient,
                            int64_t segment) {
    lanes sums[lines][wide];
    UNROLLED for (int l = 0; l < lines; l++)
        UNROLLED for (int v = 0; v < wide; v++) sums[l][v] = NAMED(load)(gradient + l * segment + v * LANES);
    for (int64_t j = 0; j < count; j++) {
        lanes strong = NAMED(spread)(strength[j]);
        const float *from = shown + place[j] * in;
        UNROLLED for (int l = 0; l < lines; l++)
            UNROLLED for (int v = 0; v < wide; v++) sums[l][v] += strong * NAMED(load)(from + l * row + v * LANES);
    }
    UNROLLED for (int l = 0; l < lines; l++)
        UNROLLED for (int v = 0; v < wide; v++) NAMED(store)(gradient + l * segment + v * LANES, sums[l][v]);
}

/* The gradient of what went in, by some lines and lanes of one channel's kernels. */
INLINE void NAMED(add_below)(const int lines, const int wide, int64_t count, const float *strength,
                             const int32_t *place, float *below, int64_t in, int64_t row, const float *kernels,
                             int64_t segment) {
    lanes held[lines][wide];
    UNROLLED for (int l = 0; l < lines; l++)
        UNROLLED for (int v = 0; v < wide; v++) held[l][v] = NAMED(load)(kernels + l * segment + v * LANES);
    for (int64_t j = 0; j < count; j++) {
        lanes strong = NAMED(spread)(strength[j]);
        float *to = below + place[j] * in;
        UNROLLED for (int l = 0; l < lines; l++)
            UNROLLED for (int v = 0; v < wide; v++) {
                float *here = to + l * row + v * LANES;
                NAMED(store)(here, NAMED(load)(here) + strong * held[l][v]);
            }
    }
}

/* Call `work` for all lines of a kernel and all lanes of a line, as many at once as there are registers for. */
#define IN_BLOCKS(work, at)                                                                                            \
    do {                                                                                                               \
        int64_t vectors = segment / LANES;                                                                             \
        if (k == 5 && vectors == 1 && HELD >= 5) work(5, 1, at(0, 0));                                                 \
        else if (k == 5 && vectors == 3 && HELD >= 15) work(5, 3, at(0, 0));                                           \
        else if (k == 5 && vectors == 5 && HELD >= 25) work(5, 5, at(0, 0));                                           \
        else if (k == 3 && vectors == 1 && HELD >= 3) work(3, 1, at(0, 0));                                            \
        else if (k == 3 && vectors == 2 && HELD >= 6) work(3, 2, at(0, 0));                                            \
        else if (k == 3 && vectors == 3 && HELD >= 9) work(3, 3, at(0, 0));                                            \
        else                                                                                                           \
            for (int64_t l = 0; l < k; l++) {                                                                          \
                int64_t v = 0;                                                                                         \
                for (; v + 4 <= vectors; v += 4) work(1, 4, at(l, v));                                                 \
                for (; v < vectors; v++) work(1, 1, at(l, v));                                                         \
            }                                                                                                          \
    } while (0)

/* Which places of channel `o` the gradient reaches: into stage->strength and place; how many. Their sum to `bias`. */
static int64_t NAMED(reached)(const Layer *layer, const Stage *stage, int64_t r, int64_t o, float *bias) {
    int64_t area = stage->y_tall * stage->y_wide, count = 0, from = r * stage->y_row + o * area;
    const float *dy = stage->dy + from, *y = stage->y + from;
    const int32_t *winners = stage->winners + from;
    float sum = 0.0f;
    for (int64_t q = 0; q < area; q++) {
        float strong = layer->relu && y[q] <= 0.0f ? 0.0f : dy[q];
        stage->strength[count] = strong, stage->place[count] = winners[q];
        count += strong != 0.0f;
        sum += strong;
    }
    *bias += sum;
    return count;
}

/* Gradients of kernels and biases added up over the rows; and of the pictures, if `dx` is asked for. */
static void NAMED(picture_backward)(const Layer *layer, const Stage *stage, const float *weights, float *gradient,
                                    int64_t rows, float *dx, int64_t x_row) {
    int64_t k = layer->kernel, in = layer->in, segment = stage->segment, row = stage->wide * in;
    float *bias = gradient + layer->out * k * segment, unused = 0.0f;
    for (int64_t r = 0; r < rows; r++) {
        const float *shown = stage->shown + r * stage->shown_row;
        if (dx) memset(stage->below, 0, 4 * stage->shown_row);
        for (int64_t o = 0; o < layer->out; o++) {
            int64_t count = NAMED(reached)(layer, stage, r, o, layer->bias >= 0 ? bias + o : &unused);
            float *own = gradient + o * k * segment;
            const float *kernels = weights + o * k * segment;
#define SEEN_AT(l, v) count, stage->strength, stage->place, shown + (l) * row + (v) * LANES, in, row, \
                      own + (l) * segment + (v) * LANES, segment
#define BELOW_AT(l, v) count, stage->strength, stage->place, stage->below + (l) * row + (v) * LANES, in, row, \
                       kernels + (l) * segment + (v) * LANES, segment
            IN_BLOCKS(NAMED(add_seen), SEEN_AT);
            if (dx) IN_BLOCKS(NAMED(add_below), BELOW_AT);
        }
        if (!dx) continue;
        float *to = dx + r * x_row;
        for (int64_t i = 0; i < in; i++)
            for (int64_t line = 0; line < layer->height; line++) {
                const float *from = stage->below + ((line + layer->pad) * stage->wide + layer->pad) * in + i;
                for (int64_t column = 0; column < layer->width; column++) *to++ = from[column * in];
            }
    }
    for (int64_t line = 0; line < layer->out * k; line++) /* beyond a kernel's line stands what is not its business */
        for (int64_t i = k * in; i < segment; i++) gradient[line * segment + i] = 0.0f;
}
