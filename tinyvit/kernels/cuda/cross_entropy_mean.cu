// The mean of the losses of a batch, by one block.

constexpr int BLOCK = 256;

extern "C" __global__ void __launch_bounds__(256) cross_entropy_mean(const float *losses, float *loss, long long B) {
    float total = 0.0f;
    for (long long row = threadIdx.x; row < B; row += BLOCK) total += losses[row];
    total = block_sum(total);
    if (threadIdx.x == 0) *loss = total / B;
}
