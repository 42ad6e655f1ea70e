/* Statistics, sketches and cosines of many rows of floats, each read as few times as can be.

   An optional part: without it, or on another device than the CPU, statistics.py does the same with torch operations,
   ten passes over all rows. Called through ctypes, so Python's other threads run meanwhile. Sums run in lanes that a
   compiler can turn into vectors without being allowed to reorder anything: -ffast-math would lose the NaNs. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 6 /* kernel.py asks for it: another one is not used */
#define LANES 16
#define STRIP 4 /* of so many times LANES buckets */
#define BLOCK 512 /* values that are summed up in float32 before a double takes over */
#define STATISTICS 6
#define UNIT_BUCKETS 8
#define TINY 1e-30f
#define OUTWEIGHS 1e3 /* a row whose square is so much the others' drowns them in a float32 sum */

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((noinline, target_clones("avx512f", "avx2", "default"))) /* inlined, it would be the default */
#else
#define CLONES
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float four __attribute__((vector_size(16), aligned(4)));
typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef float sixteen __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t bits __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32)));

/* Mirrored in kernel.py. */
struct plan {
    int64_t layers, size, buckets, units, unit_start, unit_columns;
    const int64_t *layer_sizes, *layer_buckets;
    const float *signs;           /* [size] */
    const float *unit_projection; /* [unit_columns, 8]: a sign in the column's bucket, zero in the others */
    float unit_step;              /* of a unit sketch: what 1 stands for, as a share of the unit's norm */
};

/* Rows lie anywhere, `each` says where, or so many values apart from the first on. */
struct rows {
    const float *const *each;
    const float *first;
    int64_t apart;
};

static const float *row_of(const struct rows *r, int64_t number)
{
    return r->each ? r->each[number] : r->first + number * r->apart;
}

struct found {
    double *norms;         /* [rows] */
    float *stats;          /* [rows, layers, STATISTICS] */
    uint32_t *nonfinite;   /* [rows, layers] */
    float *cosines;        /* [rows] */
    uint16_t *sketches;    /* [rows, buckets], in half precision, as are the next two */
    uint16_t *unit_norms;  /* [rows, units] */
    uint16_t *unit_sums;   /* [rows, units] */
    int8_t *unit_sketches; /* [rows, units, UNIT_BUCKETS] */
};

/* Room to work in. */
struct desk {
    float *total;                         /* [size]: the sum of a group's rows */
    float *buckets, *unit_norms, *unit_sums; /* of one row, before they are halved */
};

struct measured {
    double squares, sum;
    float low, high;
    int64_t nonzero;
};

CLONES static void measure(const float *restrict x, int64_t n, struct measured *restrict out)
{
    float low[LANES], high[LANES];
    double squares = 0, sum = 0;
    int64_t nonzero = 0, i = 0;
    for (int j = 0; j < LANES; j++)
        low[j] = INFINITY, high[j] = -INFINITY;
    while (i + LANES <= n) {
        float q[LANES] = {0}, s[LANES] = {0};
        int32_t c[LANES] = {0};
        int64_t end = i + BLOCK <= n ? i + BLOCK : n - (n - i) % LANES;
        for (; i < end; i += LANES)
            for (int j = 0; j < LANES; j++) {
                float v = x[i + j];
                q[j] += v * v;
                s[j] += v;
                low[j] = v < low[j] ? v : low[j];
                high[j] = v > high[j] ? v : high[j];
                c[j] += v != 0.0f;
            }
        for (int j = 0; j < LANES; j++)
            squares += q[j], sum += s[j], nonzero += c[j];
    }
    for (; i < n; i++) {
        float v = x[i];
        squares += v * v;
        sum += v;
        low[0] = v < low[0] ? v : low[0];
        high[0] = v > high[0] ? v : high[0];
        nonzero += v != 0.0f;
    }
    for (int j = 1; j < LANES; j++) {
        low[0] = low[j] < low[0] ? low[j] : low[0];
        high[0] = high[j] > high[0] ? high[j] : high[0];
    }
    *out = (struct measured){squares, sum, low[0], high[0], nonzero};
}

/* A value goes to the bucket that its place has when places are counted round and round. A strip of buckets at a time
   stays in registers. */
CLONES static void fold(const float *restrict x, const float *restrict signs, int64_t n, int64_t buckets,
                        float *restrict out)
{
    int64_t first = 0;
    for (; first + STRIP * LANES <= buckets; first += STRIP * LANES) {
        sixteen sums[STRIP] = {{0}};
        int64_t i = first;
        for (; i + STRIP * LANES <= n; i += buckets)
            for (int k = 0; k < STRIP; k++)
                sums[k] += *(const sixteen *)(x + i + k * LANES) * *(const sixteen *)(signs + i + k * LANES);
        memcpy(out + first, sums, sizeof sums);
        for (; i < n; i += buckets)
            for (int64_t j = 0; j < STRIP * LANES && i + j < n; j++)
                out[first + j] += x[i + j] * signs[i + j];
    }
    for (; first < buckets; first += LANES) { /* lanes beyond the last bucket add up what nobody asks for */
        sixteen sum = {0};
        float sums[LANES];
        int64_t i = first, wanted = buckets - first < LANES ? buckets - first : LANES;
        for (; i + LANES <= n; i += buckets)
            sum += *(const sixteen *)(x + i) * *(const sixteen *)(signs + i);
        memcpy(sums, &sum, sizeof sum);
        for (; i < n; i += buckets)
            for (int64_t j = 0; j < wanted && i + j < n; j++)
                sums[j] += x[i + j] * signs[i + j];
        memcpy(out + first, sums, sizeof(float) * wanted);
    }
}

CLONES static double dot(const float *restrict x, const float *restrict y, int64_t n)
{
    double total = 0;
    int64_t i = 0;
    while (i + LANES <= n) {
        float q[LANES] = {0};
        int64_t end = i + BLOCK <= n ? i + BLOCK : n - (n - i) % LANES;
        for (; i < end; i += LANES)
            for (int j = 0; j < LANES; j++)
                q[j] += x[i + j] * y[i + j];
        for (int j = 0; j < LANES; j++)
            total += q[j];
    }
    for (; i < n; i++)
        total += x[i] * y[i];
    return total;
}

CLONES static void add(const float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

CLONES static void subtract(const float *restrict x, const float *restrict y, int64_t n, float *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] - y[i];
}

static double squared_distance(const float *x, const float *y, int64_t n)
{
    float gap[BLOCK];
    double total = 0;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t some = n - i < BLOCK ? n - i : BLOCK;
        subtract(x + i, y + i, some, gap);
        total += dot(gap, gap, some);
    }
    return total;
}

/* To the nearest half, to the even one of two (after F. Giesen's float_to_half_fast3_rtne): every case is worked out,
   and one of them taken. */
INLINE halves halved(sixteen value)
{
    bits v = (bits)value, sign = v & 0x80000000u;
    v ^= sign;
    bits tiny = (bits)((sixteen)v + 0.5f) - 0x3f000000u; /* shifts what will be a subnormal's digits to the end */
    bits usual = (v - 0x38000000u + 0xfffu + ((v >> 13) & 1)) >> 13;
    bits small = (bits)(v < 0x38800000u), large = (bits)(v >= 0x47800000u), none = (bits)(v > 0x7f800000u);
    bits half = (tiny & small) | (usual & ~small);
    half = ((0x7c00u | (none & 0x200u)) & large) | (half & ~large);
    return __builtin_convertvector(half | sign >> 16, halves);
}

CLONES static void halve(const float *restrict x, int64_t n, uint16_t *restrict out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        halves found = halved(*(const sixteen *)(x + i));
        memcpy(out + i, &found, sizeof found);
    }
    if (i < n) {
        sixteen last = {0};
        memcpy(&last, x + i, sizeof *x * (n - i));
        halves found = halved(last);
        memcpy(out + i, &found, sizeof *out * (n - i));
    }
}

/* As torch: a NaN is the least and the largest value of a layer that has one. */
static uint32_t count_nonfinite(const float *x, int64_t n, float *low, float *high)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        bad += !isfinite(x[i]);
        if (isnan(x[i]))
            *low = *high = NAN;
    }
    return bad;
}

/* As torch, which does not square a value that is alone. */
static float norm_of(const float *x, int64_t n, double squares)
{
    return n == 1 ? fabsf(x[0]) : sqrtf((float)squares);
}

static float describe_layer(const float *x, int64_t n, float *stats, uint32_t *nonfinite)
{
    struct measured m = {0, 0, 0, 0, 0};
    *nonfinite = 0;
    if (n == 0) {
        memset(stats, 0, sizeof(float) * STATISTICS);
        return 0;
    }
    measure(x, n, &m);
    float norm = norm_of(x, n, m.squares);
    if (!isfinite(norm))
        *nonfinite = count_nonfinite(x, n, &m.low, &m.high);
    double mean = m.sum / n, square = n == 1 || !isfinite(norm) ? (double)norm * norm : m.squares;
    double variance = square / n - mean * mean;
    stats[0] = norm;
    stats[1] = (float)mean;
    stats[2] = (float)sqrt(variance < 0 ? 0 : variance);
    stats[3] = m.low;
    stats[4] = m.high;
    stats[5] = (float)(1.0 - (double)m.nonzero / n);
    return norm;
}

/* The norm of the whole row. */
static double describe_row(const struct plan *p, const float *x, float *stats, uint32_t *nonfinite)
{
    double squares = 0;
    for (int64_t l = 0; l < p->layers; l++) {
        double norm = describe_layer(x, p->layer_sizes[l], stats + l * STATISTICS, nonfinite + l);
        squares += norm * norm;
        x += p->layer_sizes[l];
    }
    return sqrt(squares);
}

/* Of the row divided by its norm; nothing but zeros for one that points nowhere. */
static void sketch_row(const struct plan *p, const float *x, double norm, float *buckets, uint16_t *out)
{
    float share = (float)(1.0 / norm);
    if (!isfinite(norm) || !isfinite(share)) {
        memset(out, 0, sizeof *out * p->buckets);
        return;
    }
    const float *signs = p->signs;
    float *bucket = buckets;
    for (int64_t l = 0; l < p->layers; l++) {
        fold(x, signs, p->layer_sizes[l], p->layer_buckets[l], bucket);
        x += p->layer_sizes[l];
        signs += p->layer_sizes[l];
        bucket += p->layer_buckets[l];
    }
    for (int64_t j = 0; j < p->buckets; j++)
        buckets[j] *= share;
    halve(buckets, p->buckets, out);
}

/* Norm, sum and sketch of one output unit's row. A column goes to one bucket, but multiplying by a zero for each of the
   others is quicker than finding it. */
CLONES static void sketch_unit(const struct plan *p, const float *x, float *norm, float *sum, int8_t *out)
{
    const eight *projection = (const eight *)p->unit_projection;
    four sums = {0}, squares = {0};
    eight buckets[4] = {{0}}; /* four chains: none waits for another */
    int64_t i = 0, n = p->unit_columns;
    for (; i + 4 <= n; i += 4, projection += 4) {
        four v;
        memcpy(&v, x + i, sizeof v);
        sums += v;
        squares += v * v;
        for (int k = 0; k < 4; k++)
            buckets[k] += x[i + k] * projection[k];
    }
    for (; i < n; i++, projection++) {
        sums[0] += x[i];
        squares[0] += x[i] * x[i];
        buckets[0] += x[i] * projection[0];
    }
    *sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    *norm = norm_of(x, n, (double)((squares[0] + squares[1]) + (squares[2] + squares[3])));
    float steps = 1 / ((*norm > TINY ? *norm : TINY) * p->unit_step);
    buckets[0] = ((buckets[0] + buckets[1]) + (buckets[2] + buckets[3])) * steps;
    for (int j = 0; j < UNIT_BUCKETS; j++) {
        float v = buckets[0][j];
        out[j] = (int8_t)lrintf(v > 127 ? 127 : v < -127 ? -127 : v);
    }
}

static void sketch_units(const struct plan *p, const float *x, const struct desk *d, const struct found *f, int64_t row)
{
    int64_t begin = row * p->units;
    int8_t *sketches = f->unit_sketches + begin * UNIT_BUCKETS;
    if (!isfinite(f->norms[row])) {
        memset(f->unit_norms + begin, 0, sizeof(uint16_t) * p->units);
        memset(f->unit_sums + begin, 0, sizeof(uint16_t) * p->units);
        memset(sketches, 0, p->units * UNIT_BUCKETS);
        return;
    }
    double squares = 0;
    x += p->unit_start;
    for (int64_t u = 0; u < p->units; u++, x += p->unit_columns) {
        sketch_unit(p, x, d->unit_norms + u, d->unit_sums + u, sketches + u * UNIT_BUCKETS);
        squares += (double)d->unit_norms[u] * d->unit_norms[u];
    }
    float whole = (float)sqrt(squares);
    whole = whole > TINY ? whole : TINY;
    for (int64_t u = 0; u < p->units; u++) {
        d->unit_norms[u] /= whole;
        d->unit_sums[u] /= whole * sqrtf((float)p->unit_columns);
    }
    halve(d->unit_norms, p->units, f->unit_norms + begin);
    halve(d->unit_sums, p->units, f->unit_sums + begin);
}

static int has_direction(double norm)
{
    return isfinite(norm) && norm > 0;
}

static float clipped(double cosine)
{
    return !isfinite(cosine) ? NAN : (float)(cosine > 1 ? 1 : cosine < -1 ? -1 : cosine);
}

/* Rows of one group: those that begin with `first`, so many. */
struct group {
    const struct rows *rows;
    int64_t first, count;
};

static void add_others(const struct plan *p, const struct group *g, const double *norms, int64_t but, float *total)
{
    memset(total, 0, sizeof(float) * p->size);
    for (int64_t r = 0; r < g->count; r++)
        if (r != but && has_direction(norms[r]))
            add(row_of(g->rows, g->first + r), total, p->size);
}

/* Of each row to the mean of the others, NaN for one that is alone or has no direction. With S the sum of all, `total`,
   dot(u, S - u) = dot(u, S) - |u|^2, and likewise for the length; a row beside which the others vanish is taken by the
   definition. */
static void compare(const struct plan *p, const struct group *g, const double *norms, float *total, float *cosines)
{
    double all = 0;
    int64_t heavy = -1, present = 0;
    for (int64_t r = 0; r < g->count; r++)
        if (has_direction(norms[r])) {
            all += norms[r] * norms[r];
            present++;
        }
    double whole = dot(total, total, p->size);
    for (int64_t r = 0; r < g->count; r++) {
        double square = norms[r] * norms[r];
        cosines[r] = NAN;
        if (!has_direction(norms[r]) || present < 2)
            continue;
        if (square > OUTWEIGHS * (all - square)) {
            heavy = r;
            continue;
        }
        double along = dot(row_of(g->rows, g->first + r), total, p->size), others = whole - 2 * along + square;
        cosines[r] = clipped((along - square) / sqrt((others > 0 ? others : 0) * square));
    }
    if (heavy >= 0) {
        add_others(p, g, norms, heavy, total);
        double along = dot(row_of(g->rows, g->first + heavy), total, p->size);
        cosines[heavy] = clipped(along / (norms[heavy] * sqrt(dot(total, total, p->size))));
    }
}

int64_t fedvitals_version(void)
{
    return VERSION;
}

/* Where in `whole` each part begins, in the order of `struct found`; a negative place asks for nothing. */
static struct found laid_out(char *whole, const int64_t *places)
{
    void *at[8];
    for (int i = 0; i < 8; i++)
        at[i] = places[i] < 0 ? NULL : whole + places[i];
    return (struct found){at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]};
}

/* Groups of rows follow each other; those of a group are compared. Gives the number of rows whose norm is not finite, or
   -1 where there is no memory to work in. */
int64_t fedvitals_summarise(const struct plan *p, const float *const *each, const float *start, int64_t apart,
                            const int64_t *groups, int64_t group_count, char *whole, const int64_t *places)
{
    struct rows rows = {each, start, apart};
    struct found f = laid_out(whole, places);
    float *room = malloc(sizeof(float) * ((f.cosines ? p->size : 0) + p->buckets + 2 * p->units + 1));
    if (!room)
        return -1;
    struct desk d = {.buckets = room, .unit_norms = room + p->buckets};
    d.unit_sums = d.unit_norms + p->units;
    d.total = d.unit_sums + p->units;
    int64_t bad = 0, row = 0;
    for (int64_t g = 0; g < group_count; g++) {
        struct group group = {&rows, row, groups[g]};
        if (f.cosines)
            memset(d.total, 0, sizeof(float) * p->size);
        for (; row < group.first + group.count; row++) {
            const float *x = row_of(&rows, row);
            f.norms[row] = describe_row(p, x, f.stats + row * p->layers * STATISTICS, f.nonfinite + row * p->layers);
            bad += !isfinite(f.norms[row]);
            if (f.sketches)
                sketch_row(p, x, f.norms[row], d.buckets, f.sketches + row * p->buckets);
            if (f.unit_sketches)
                sketch_units(p, x, &d, &f, row);
            if (f.cosines && has_direction(f.norms[row])) /* now, while the row is at hand */
                add(x, d.total, p->size);
        }
        if (f.cosines)
            compare(p, &group, f.norms + group.first, d.total, f.cosines + group.first);
    }
    free(room);
    return bad;
}

/* Of each layer of each row, [rows, layers]. */
void fedvitals_norms(const struct plan *p, const float *const *rows, int64_t count, float *norms)
{
    for (int64_t r = 0; r < count; r++) {
        const float *x = rows[r];
        for (int64_t l = 0; l < p->layers; l++) {
            *norms++ = norm_of(x, p->layer_sizes[l], dot(x, x, p->layer_sizes[l]));
            x += p->layer_sizes[l];
        }
    }
}

/* Of each of some tensors. */
void fedvitals_lengths(const float *const *tensors, const int64_t *sizes, int64_t count, float *norms)
{
    for (int64_t t = 0; t < count; t++)
        norms[t] = norm_of(tensors[t], sizes[t], dot(tensors[t], tensors[t], sizes[t]));
}

/* How far each row is from the one beside it. */
void fedvitals_distances(const float *const *rows, const float *const *beside, int64_t count, int64_t size, double *far)
{
    for (int64_t r = 0; r < count; r++)
        far[r] = sqrt(squared_distance(rows[r], beside[r], size));
}

/* Whether tensors, one after the other, are this row, bit by bit. */
int64_t fedvitals_same(const float *const *tensors, const int64_t *sizes, int64_t count, const float *row)
{
    for (int64_t t = 0; t < count; row += sizes[t++])
        if (sizes[t] && memcmp(tensors[t], row, sizeof(float) * sizes[t])) /* an empty tensor lies nowhere */
            return 0;
    return 1;
}

/* Tensors, one after the other, less this row. */
void fedvitals_difference(const float *const *tensors, const int64_t *sizes, int64_t count, const float *row, float *out)
{
    for (int64_t t = 0; t < count; row += sizes[t], out += sizes[t], t++)
        subtract(tensors[t], row, sizes[t], out);
}

/* Tensors, one after the other. */
void fedvitals_gather(const float *const *tensors, const int64_t *sizes, int64_t count, float *out)
{
    for (int64_t t = 0; t < count; out += sizes[t++])
        if (sizes[t])
            memcpy(out, tensors[t], sizeof(float) * sizes[t]);
}
