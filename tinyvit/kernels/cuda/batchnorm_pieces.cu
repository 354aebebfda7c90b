// What batchnorm.cu finds for the pieces of a channel, combined: a warp a channel, whose lanes take every 32nd piece.

constexpr int WARPS = 8;

template <class F> __device__ inline float warp_total(long long count, F entry) {
    float sum = 0.0f;
    for (long long i = threadIdx.x % 32; i < count; i += 32) sum += entry(i);
    return warp_sum(sum);
}

// statistics (5, C) from the moments of all pieces: 1 / standard deviation, the mean, what its rounding has left of it, the
// sum of squared differences, and the unbiased variance. counts (pieces,), or null for pieces of `most` numbers and a last
// one of what is left of `total`. Chan, Golub & LeVeque 1979.
extern "C" __global__ void __launch_bounds__(256) batch_norm_statistics(
    const float *partial, const float *counts, float *statistics, float eps, long long C, long long pieces,
    long long most, long long total
) {
    long long channel = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
    if (channel >= C) return;
    const float *means = partial + channel * pieces, *rests = means + C * pieces, *squares = rests + C * pieces;
    float base = means[0];
    auto count = [&](long long p) {
        return counts ? counts[p] : (float)min(most, total - p * most);
    };
    auto away = [&](long long p) { return (means[p] - base) + rests[p]; };  // the mean of a piece, less base
    float shift = warp_total(pieces, [&](long long p) { return count(p) * away(p); }) / total;
    float sum = warp_total(pieces, [&](long long p) {
        float apart = away(p) - shift;
        return squares[p] + count(p) * apart * apart;
    });
    if (threadIdx.x % 32) return;
    float mean = base + shift;
    statistics[channel] = 1.0f / sqrtf(sum / total + eps);
    statistics[C + channel] = mean;
    statistics[2 * C + channel] = (base - mean) + shift;
    statistics[3 * C + channel] = sum;
    statistics[4 * C + channel] = sum / max(total - 1, 1ll);
}

// The sums over the pieces: written to totals (2, C), and added to dbias and dweight, unless null.
extern "C" __global__ void __launch_bounds__(256) channel_totals(
    const float *partial, float *totals, float *dweight, float *dbias, long long C, long long pieces
) {
    long long channel = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
    if (channel >= C) return;
    const float *sums = partial + channel * pieces, *alongs = sums + C * pieces;
    bool first = threadIdx.x % 32 == 0;
    if (totals || dbias) {
        float sum = warp_total(pieces, [&](long long p) { return sums[p]; });
        if (first && totals) totals[channel] = sum;
        if (first && dbias) dbias[channel] += sum;
    }
    if (totals || dweight) {
        float along = warp_total(pieces, [&](long long p) { return alongs[p]; });
        if (first && totals) totals[C + channel] = along;
        if (first && dweight) dweight[channel] += along;
    }
}
