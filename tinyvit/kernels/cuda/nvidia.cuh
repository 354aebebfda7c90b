// What takes an instruction of the GPU's own; the tests have a header in this one's place that does the same on a CPU.

__device__ inline float float_of_half_bits(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

__device__ inline unsigned short half_bits_of_float(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// Tensor cores, from compute capability 8.0 on: d += a b for a (16 x 16), b (16 x 8) and d (16 x 8), which the 32 threads
// of a warp hold together. Of the numbers in 16 bits two lie in an unsigned int, the first in the lower half. With
// g = lane / 4 and t = lane % 4 a thread has
//
//   a[0] = a(g, 2t), a(g, 2t + 1)      a[1] = a(g + 8, 2t ..)    a[2] = a(g, 2t + 8 ..)    a[3] = a(g + 8, 2t + 8 ..)
//   b[0] = b(2t, g), b(2t + 1, g)      b[1] = b(2t + 8 .., g)
//   d[0], d[1] = d(g, 2t), d(g, 2t + 1)                         d[2], d[3] = d(g + 8, 2t), d(g + 8, 2t + 1)
#define MULTIPLY_FRAGMENTS(type) \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
        "{%0, %1, %2, %3};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

__device__ inline void multiply_bfloat16(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
    MULTIPLY_FRAGMENTS("bf16");
}

__device__ inline void multiply_float16(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
    MULTIPLY_FRAGMENTS("f16");
}
