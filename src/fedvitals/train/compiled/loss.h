/* Cross entropy: the mean loss of some rows, and its gradient in place of their scores. */

/* e to the power of something at most zero, to about a unit in the last place (Cephes' polynomial). */
INLINE lanes NAMED(exponential)(lanes x) {
    x = NAMED(chosen)(x < -87.0f, NAMED(spread)(-87.0f), x);
    lanes turns = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f; /* to the nearest whole number */
    lanes rest = x - turns * 0.693359375f + turns * 2.12194440e-4f;
    lanes value = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    value = value * rest + 8.3334519073e-3f;
    value = value * rest + 4.1665795894e-2f;
    value = value * rest + 1.6666665459e-1f;
    value = value * rest + 5.0000001201e-1f;
    value = value * rest * rest + rest + 1.0f;
    marks power = (__builtin_convertvector(turns, marks) + 127) << 23;
    return value * (lanes)power;
}

INLINE float NAMED(largest)(const float *scores, int64_t classes) {
    float most = scores[0];
    for (int64_t c = 1; c < classes; c++) most = scores[c] > most || scores[c] != scores[c] ? scores[c] : most;
    return most;
}

/* One row: its loss; scores become (share of each class - 1 if it is the right one) * weight. */
INLINE double NAMED(judged)(float *scores, int64_t classes, int64_t right, float weight) {
    float most = NAMED(largest)(scores, classes), sum = 0.0f;
    double picked = (double)scores[right] - most;
    int64_t wide = padded(classes);
    lanes total = {};
    for (int64_t c = 0; c < wide; c += LANES) {
        lanes share = NAMED(exponential)(NAMED(load)(scores + c) - most);
        share = NAMED(chosen)(COUNTED + (int32_t)c < (int32_t)classes, share, (lanes){});
        NAMED(store)(scores + c, share);
        total += share;
    }
    UNROLLED for (int i = 0; i < LANES; i++) sum += total[i];
    /* Infinities and NaN have no shares. */
    float factor = most - most == 0.0f ? weight / sum : NAN;
    for (int64_t c = 0; c < wide; c += LANES) {
        lanes share = NAMED(load)(scores + c) * factor;
        NAMED(store)(scores + c, NAMED(chosen)(COUNTED + (int32_t)c < (int32_t)classes, share, (lanes){}));
    }
    scores[right] -= weight;
    return most - most == 0.0f ? log(sum) - picked : NAN;
}

static float NAMED(loss)(float *scores, int64_t classes, const int64_t *right, int64_t rows) {
    double total = 0.0;
    for (int64_t r = 0; r < rows; r++)
        total += NAMED(judged)(scores + r * padded(classes), classes, right[r], 1.0f / (float)rows);
    return (float)(total / (double)rows);
}
