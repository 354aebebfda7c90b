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

__device__ inline unsigned int half_bits_of_floats(float first, float second) {
    unsigned int bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
}

// Four numbers of shared memory that start on 16 bytes, read now even if they were read before: until then they take no
// registers.
__device__ inline void load_again(float (&x)[4], const float *where) {
    asm volatile(
        "ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
        : "r"((unsigned int)__cvta_generic_to_shared(where))
        : "memory"
    );
}

// -- tensor cores, from Ampere on: a whole warp computes one product, of which each thread (lane) holds a part -----------
//
// c += a b for matrices a (16, 16), b (16, 8) and c (16, 8). Two numbers of 16 bits that lie side by side in a row of a,
// or below each other in a column of b, are one register; the first of them is the lower half. A lane holds
//
//            columns 2t, 2t+1   2t+8, 2t+9                    column g                      columns 2t, 2t+1
//   row g        a[0]             a[2]          rows 2t, 2t+1     b[0]           row g         c[0], c[1]
//   row g+8      a[1]             a[3]          rows 2t+8, 2t+9   b[1]           row g+8       c[2], c[3]
//
// where g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"). So the c
// of two products side by side, rounded to 16 bits, is the a of the next product.

__device__ inline void multiply_bfloat16(float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)
    );
}

__device__ inline void multiply_half(float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)
    );
}

// Four matrices (8, 8) of numbers of 16 bits from shared memory. Lane 8i + r gives the address of row r of matrix i, which
// starts on 16 bytes. A lane gets the columns 2t and 2t+1 of row g of each matrix.
__device__ inline void load_matrices(unsigned int (&x)[4], const void *row) {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
        : "r"((unsigned int)__cvta_generic_to_shared(row))
        : "memory"
    );
}

// The same of the transposed matrices: the rows 2t and 2t+1 of column g.
__device__ inline void load_transposed_matrices(unsigned int (&x)[4], const void *row) {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
        : "r"((unsigned int)__cvta_generic_to_shared(row))
        : "memory"
    );
}
