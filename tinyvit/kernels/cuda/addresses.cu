// The addresses of the matrices of three arrays with the same two leading axes, of which the inner one has `inner` entries:
// from one entry to the next are `far` bytes along the outer axis and `near` along the inner one. (3, count).

extern "C" __global__ void addresses_of_matrices(
    const char *a, long long a_far, long long a_near, const char *b, long long b_far, long long b_near, const char *c,
    long long c_far, long long c_near, const char **addresses, long long inner, long long count
) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    long long far = i / inner, near = i % inner;
    addresses[i] = a + far * a_far + near * a_near;
    addresses[count + i] = b + far * b_far + near * b_near;
    addresses[2 * count + i] = c + far * c_far + near * c_near;
}
