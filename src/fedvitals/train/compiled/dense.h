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

/* dx = dy w', into rows of x_row; `turned` has room for the weights the other way round. */
static void NAMED(dense_below)(const Layer *layer, const float *weights, int64_t rows, const float *dy, float *dx,
                               int64_t x_row, float *turned) {
    int64_t wide = padded(layer->out), in = layer->in;
    for (int64_t i = 0; i < in; i++)
        for (int64_t o = 0; o < layer->out; o++) turned[o * x_row + i] = weights[i * wide + o];
    for (int64_t o = 0; o < layer->out; o++)
        for (int64_t i = in; i < x_row; i++) turned[o * x_row + i] = 0.0f;
    NAMED(product)(rows, x_row, layer->out, dy, wide, 1, turned, x_row, 0, dx, x_row);
}
