/* Products of small matrices, and the layers that are nothing else. */

/* rows x wide sums: C = start + A B, where A(r, k) lies at A[r * a_row + k * a_col], and C and B in lanes. */
INLINE void NAMED(tile)(const int rows, const int wide, int64_t inner, const float *A, int64_t a_row, int64_t a_col,
                        const float *B, int64_t b_row, const float *start, float *C, int64_t c_row) {
    lanes sums[TILE_ROWS][TILE_WIDE];
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < wide; v++) sums[r][v] = start ? NAMED(load)(start + v * LANES) : (lanes){};
    for (int64_t k = 0; k < inner; k++) {
        lanes b[TILE_WIDE];
        UNROLLED for (int v = 0; v < wide; v++) b[v] = NAMED(load)(B + k * b_row + v * LANES);
        UNROLLED for (int r = 0; r < rows; r++) {
            lanes a = NAMED(spread)(A[r * a_row + k * a_col]);
            UNROLLED for (int v = 0; v < wide; v++) sums[r][v] += a * b[v];
        }
    }
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < wide; v++) NAMED(store)(C + r * c_row + v * LANES, sums[r][v]);
}

INLINE void NAMED(stripe)(const int wide, int64_t rows, int64_t inner, const float *A, int64_t a_row, int64_t a_col,
                          const float *B, int64_t b_row, const float *start, float *C, int64_t c_row) {
    int64_t r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
        NAMED(tile)(TILE_ROWS, wide, inner, A + r * a_row, a_row, a_col, B, b_row, start, C + r * c_row, c_row);
    for (; TILE_ROWS > 4 && r + 4 <= rows; r += 4)
        NAMED(tile)(4, wide, inner, A + r * a_row, a_row, a_col, B, b_row, start, C + r * c_row, c_row);
    for (; r + 2 <= rows; r += 2)
        NAMED(tile)(2, wide, inner, A + r * a_row, a_row, a_col, B, b_row, start, C + r * c_row, c_row);
    for (; r < rows; r++)
        NAMED(tile)(1, wide, inner, A + r * a_row, a_row, a_col, B, b_row, start, C + r * c_row, c_row);
}

/* C [rows, columns] = start + A B; columns is a multiple of LANES. */
static void NAMED(product)(int64_t rows, int64_t columns, int64_t inner, const float *A, int64_t a_row, int64_t a_col,
                           const float *B, int64_t b_row, const float *start, float *C, int64_t c_row) {
    int64_t c = 0;
    for (; TILE_WIDE > 1 && c + TILE_WIDE * LANES <= columns; c += TILE_WIDE * LANES)
        NAMED(stripe)(TILE_WIDE, rows, inner, A, a_row, a_col, B + c, b_row, start ? start + c : 0, C + c, c_row);
    for (; c < columns; c += LANES)
        NAMED(stripe)(1, rows, inner, A, a_row, a_col, B + c, b_row, start ? start + c : 0, C + c, c_row);
}

/* What is below zero becomes zero; NaN stays what it is, as in torch. */
static void NAMED(rectify)(float *values, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) {
        lanes some = NAMED(load)(values + i);
        NAMED(store)(values + i, NAMED(chosen)(some < 0.0f, (lanes){}, some));
    }
}

/* The gradient passes where something came out. */
static void NAMED(passed)(float *gradient, const float *out, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) {
        lanes some = NAMED(load)(gradient + i);
        NAMED(store)(gradient + i, NAMED(chosen)(NAMED(load)(out + i) <= 0.0f, (lanes){}, some));
    }
}

/* Weights lie as [in, out padded]: y = b + x w. */
static void NAMED(dense_forward)(const Layer *layer, const float *weights, int64_t rows, const float *x, int64_t x_row,
                                 float *y) {
    int64_t wide = padded(layer->out);
    const float *bias = weights + layer->in * wide;
    NAMED(product)(rows, wide, layer->in, x, x_row, 1, weights, wide, bias, y, wide);
    if (layer->relu) NAMED(rectify)(y, rows * wide);
}

static void NAMED(dense_gradient)(const Layer *layer, float *gradient, int64_t rows, const float *x, int64_t x_row,
                                  const float *dy) {
    int64_t wide = padded(layer->out);
    float *bias = gradient + layer->in * wide;
    NAMED(product)(layer->in, wide, rows, x, 1, x_row, dy, wide, 0, gradient, wide);
    for (int64_t o = 0; o < wide; o += LANES) {
        lanes sum = {};
        for (int64_t r = 0; r < rows && layer->bias >= 0; r++) sum += NAMED(load)(dy + r * wide + o);
        NAMED(store)(bias + o, sum);
    }
}

/* Sixteen rows of sixteen, turned: halves change places with their mirror images, then quarters, and so on. */
#define UNPACKED(...) __VA_ARGS__
#define SWAPPED(distance, upper, lower)                                                                                \
    UNROLLED for (int i = 0; i < LANES; i++) if (!(i & distance)) {                                                    \
        lanes a = square[i], b = square[i + distance];                                                                 \
        square[i] = __builtin_shufflevector(a, b, UNPACKED upper);                                                     \
        square[i + distance] = __builtin_shufflevector(a, b, UNPACKED lower);                                          \
    }

/* to [columns, to_row] = from [rows, from_row] turned; what is beyond the rows becomes zero. Whole lanes are written. */
static void NAMED(turn)(const float *from, int64_t rows, int64_t from_row, float *to, int64_t columns, int64_t to_row) {
    for (int64_t r = 0; r < to_row; r += LANES)
        for (int64_t c = 0; c < columns; c += LANES) {
            lanes square[LANES];
            UNROLLED for (int i = 0; i < LANES; i++)
                square[i] = r + i < rows ? NAMED(load)(from + (r + i) * from_row + c) : (lanes){};
            SWAPPED(8, (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23), (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
            SWAPPED(4, (0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27), (4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
            SWAPPED(2, (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29), (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
            SWAPPED(1, (0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30), (1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
            UNROLLED for (int i = 0; i < LANES; i++) NAMED(store)(to + (c + i) * to_row + r, square[i]);
        }
}

/* dx = dy w', into rows of x_row; `turned` has room for the weights the other way round. */
static void NAMED(dense_below)(const Layer *layer, const float *weights, int64_t rows, const float *dy, float *dx,
                               int64_t x_row, float *turned) {
    int64_t wide = padded(layer->out);
    NAMED(turn)(weights, layer->in, wide, turned, layer->out, x_row);
    NAMED(product)(rows, x_row, layer->out, dy, wide, 1, turned, x_row, 0, dx, x_row);
}
