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

// bfloat16, rounded to nearest, ties to even; from Ampere on.
__device__ inline unsigned short bfloat16_bits_of_float(float x) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// Two at once; the first is the lower half.
__device__ inline unsigned int bfloat16_bits_of_floats(float first, float second) {
    unsigned int bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
}
