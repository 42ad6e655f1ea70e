/* Trains small dense and convolutional models, a client at a time, whole clients in one call.
 *
 * A batched operation over a hundred clients reads and writes all of their weights at every step. One client's weights,
 * gradients and velocities stay in the cache from its first step to its last, and nothing but its update comes out. Each
 * client is trained by one thread and by itself, so its bits depend neither on who is trained beside it nor on how many
 * threads there are. They depend on the processor's instructions: there is a version for AVX-512, one for AVX2, one for
 * everything else.
 */

#include "trainer.h"

#include <math.h>
#include <string.h>

#define LANES 16
#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 32")

typedef float lanes __attribute__((vector_size(64)));
typedef int32_t marks __attribute__((vector_size(64)));
typedef float loose_lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t loose_marks __attribute__((vector_size(64), aligned(4), may_alias));

static const marks COUNTED = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

#include "room.h"

#define VERSION 2

#if defined(__x86_64__) && defined(__clang__)
#define FOR_AVX512 _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512vl,avx512bw,avx512dq,avx2,fma\"))), apply_to = function)")
#define FOR_AVX2 _Pragma("clang attribute push(__attribute__((target(\"avx2,fma\"))), apply_to = function)")
#define FOR_ALL _Pragma("clang attribute pop")
#elif defined(__x86_64__)
#define FOR_AVX512 _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512vl,avx512bw,avx512dq,avx2,fma\")")
#define FOR_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define FOR_ALL _Pragma("GCC pop_options")
#endif

#ifdef __x86_64__
FOR_AVX512
#define NAMED(name) name##_avx512
#define TILE_ROWS 8 /* 16 sums of the 32 registers */
#define TILE_WIDE 2
#define HELD 25 /* sums that a gradient of kernels is held in */
#include "training.h"
#undef NAMED
#undef TILE_ROWS
#undef TILE_WIDE
#undef HELD
FOR_ALL
FOR_AVX2
#define NAMED(name) name##_avx2
#define TILE_ROWS 4 /* of two registers each */
#define TILE_WIDE 1
#define HELD 5
#include "training.h"
#undef NAMED
#undef TILE_ROWS
#undef TILE_WIDE
#undef HELD
FOR_ALL
#endif

#define NAMED(name) name##_plain
#define TILE_ROWS 4
#define TILE_WIDE 1
#define HELD 3
#include "training.h"

int64_t fedvitals_trainer_version(void) { return VERSION; }

/* Bytes that a thread needs to work in. */
int64_t fedvitals_trainer_room(const Program *program, int64_t features) {
    Room room;
    return cut_up(program, features, 0, &room);
}

/* 0: the plainest version, 1: AVX2 at most, 2: the best there is. */
int32_t fedvitals_trainer_instructions = 2;

/* Train clients until there is none left that another thread has not taken. `room` begins at a multiple of 64. */
void fedvitals_train(Cohort *cohort, void *room) {
#ifdef __x86_64__
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    if (avx512 && fedvitals_trainer_instructions > 1) {
        train_avx512(cohort, room);
        return;
    }
    if (avx2 && fedvitals_trainer_instructions > 0) {
        train_avx2(cohort, room);
        return;
    }
#endif
    train_plain(cohort, room);
}
