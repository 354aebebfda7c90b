// Batch norm of x (B, C, S): C channels with S positions in each sample. The B · S numbers of a channel are divided into
// pieces, a block each: block b has piece b / C of channel b % C. A block reads its piece once, into registers.

constexpr int BLOCK = 256, LANE = 32, PIECE = BLOCK * LANE, PACKS = LANE / PACK;  // as batchnorm.py has them

// Where a thread's packs of the block's piece lie in x; they are BLOCK packs apart in the channel.
struct Walk {
    int channel;
    long long left;              // numbers of the channel from here on; none if not above 0
    long long offset, step;      // in x, and from pack to pack,
    long long gap;               // and more where that leaves a sample
    long long position, turn, S; // in the sample, and from pack to pack
};

__device__ inline Walk walk_of(long long B, long long C, long long S) {
    unsigned int channels = C, distance = BLOCK * PACK, positions = min(S, 1ll << 30);  // 64 bits are slow to divide
    int channel = blockIdx.x % channels;
    long long index = (long long)(blockIdx.x / channels) * PIECE + threadIdx.x * PACK, sample = index / S;
    long long position = index - sample * S, turn = distance % positions;
    long long offset = (sample * C + channel) * S + position, step = distance / positions * C * S + turn;
    return {channel, B * S - index, offset, step, (C - 1) * S, position, turn, S};
}

__device__ inline void go_on(Walk &walk) {
    walk.left -= BLOCK * PACK;
    walk.offset += walk.step;
    walk.position += walk.turn;
    if (walk.position < walk.S) return;
    walk.position -= walk.S;
    walk.offset += walk.gap;
}

// partial (3, C, pieces): each piece's mean, what its rounding has left of it, and the sum of squared differences from both.
extern "C" __global__ void __launch_bounds__(256) batch_norm_moments(
    const T *x, float *partial, long long B, long long C, long long S, long long pieces
) {
    float numbers[LANE], total = 0.0f, rest = 0.0f, squares = 0.0f;
    unsigned int inside = 0;  // a bit for each pack
    Walk walk = walk_of(B, C, S);
    #pragma unroll
    for (int p = 0; p < PACKS; p++, go_on(walk)) {
        float pack[PACK] = {};
        if (walk.left > 0) load_pack<PACK>(pack, x + walk.offset);
        if (walk.left > 0) inside |= 1u << p;
        for (int j = 0; j < PACK; j++) numbers[p * PACK + j] = pack[j];
    }
    long long piece = blockIdx.x / C, count = min((long long)PIECE, B * S - piece * PIECE);
    #pragma unroll
    for (int i = 0; i < LANE; i++) total += numbers[i];
    float mean = block_sum(total) / count;
    #pragma unroll
    for (int i = 0; i < LANE; i++) {
        numbers[i] = inside >> (i / PACK) & 1 ? numbers[i] - mean : 0.0f;
        rest += numbers[i];
    }
    rest = block_sum(rest) / count;
    #pragma unroll
    for (int i = 0; i < LANE; i++) {
        numbers[i] = inside >> (i / PACK) & 1 ? numbers[i] - rest : 0.0f;
        squares += numbers[i] * numbers[i];
    }
    squares = block_sum(squares);
    if (threadIdx.x) return;
    long long at = walk.channel * pieces + piece;
    partial[at] = mean;
    partial[C * pieces + at] = rest;
    partial[2 * C * pieces + at] = squares;
}

__device__ inline void normalise(Walk walk, const T *x, T *y, float rstd, float mean, float rest, float w, float b) {
    #pragma unroll 4
    for (int p = 0; p < PACKS; p++, go_on(walk)) {
        if (walk.left <= 0) break;
        float pack[PACK];
        load_pack<PACK>(pack, x + walk.offset);
        for (int j = 0; j < PACK; j++) pack[j] = (pack[j] - mean - rest) * rstd * w + b;
        store_pack<PACK>(y + walk.offset, pack);
    }
}

// y = (x − μ) · rstd · weight + bias.
extern "C" __global__ void __launch_bounds__(256) batch_norm_forward(
    const T *x, const float *statistics, const float *weight, const float *bias, T *y, long long B, long long C,
    long long S
) {
    Walk walk = walk_of(B, C, S);
    const float *of = statistics + walk.channel;
    normalise(walk, x, y, of[0], of[C], of[2 * C], weight[walk.channel], bias[walk.channel]);
}

// The same with a given mean and variance, from which statistics (3, C) are written as the backward reads them.
extern "C" __global__ void __launch_bounds__(256) batch_norm_running(
    const T *x, const float *mean, const float *variance, const float *weight, const float *bias, T *y,
    float *statistics, float eps, long long B, long long C, long long S
) {
    Walk walk = walk_of(B, C, S);
    int channel = walk.channel;
    float rstd = 1.0f / sqrtf(variance[channel] + eps);
    normalise(walk, x, y, rstd, mean[channel], 0.0f, weight[channel], bias[channel]);
    if (threadIdx.x || blockIdx.x >= C) return;
    statistics[channel] = rstd;
    statistics[C + channel] = mean[channel];
    statistics[2 * C + channel] = 0.0f;
}

// partial (2, C, pieces): Σ dy and Σ dy x̂ of each piece; without x, (1, C, pieces): Σ dy.
extern "C" __global__ void __launch_bounds__(256) channel_sums(
    const T *dy, const T *x, const float *statistics, float *partial, long long B, long long C, long long S,
    long long pieces
) {
    Walk walk = walk_of(B, C, S);
    float sum = 0.0f, along = 0.0f, mean = 0.0f, rest = 0.0f, rstd = 0.0f;
    if (x) {
        rstd = statistics[walk.channel];
        mean = statistics[C + walk.channel];
        rest = statistics[2 * C + walk.channel];
    }
    #pragma unroll 4
    for (int p = 0; p < PACKS; p++, go_on(walk)) {
        if (walk.left <= 0) break;
        float gradients[PACK], pack[PACK] = {};
        load_pack<PACK>(gradients, dy + walk.offset);
        if (x) load_pack<PACK>(pack, x + walk.offset);
        for (int j = 0; j < PACK; j++) {
            sum += gradients[j];
            along += gradients[j] * ((pack[j] - mean - rest) * rstd);
        }
    }
    sum = block_sum(sum);
    along = block_sum(along);
    if (threadIdx.x) return;
    long long at = walk.channel * pieces + blockIdx.x / C;
    partial[at] = sum;
    if (x) partial[C * pieces + at] = along;
}

// dx = weight · rstd (dy − mean(dy) − x̂ mean(dy x̂)), with the two means from totals (2, C) and `share`, 1 / their count;
// without totals, where the statistics don't depend on x, weight · rstd · dy.
extern "C" __global__ void __launch_bounds__(256) batch_norm_backward(
    const T *dy, const T *x, const float *statistics, const float *weight, const float *totals, T *dx, float share,
    long long B, long long C, long long S
) {
    Walk walk = walk_of(B, C, S);
    const float *of = statistics + walk.channel;
    float rstd = of[0], mean = of[C], rest = of[2 * C], scale = weight[walk.channel] * rstd, middle = 0.0f, along = 0.0f;
    if (totals) {
        middle = totals[walk.channel] * share;
        along = totals[C + walk.channel] * share;
    }
    #pragma unroll 4
    for (int p = 0; p < PACKS; p++, go_on(walk)) {
        if (walk.left <= 0) break;
        float gradients[PACK], pack[PACK] = {};
        load_pack<PACK>(gradients, dy + walk.offset);
        if (totals) {
            load_pack<PACK>(pack, x + walk.offset);
            for (int j = 0; j < PACK; j++) gradients[j] -= middle + (pack[j] - mean - rest) * rstd * along;
        }
        for (int j = 0; j < PACK; j++) gradients[j] *= scale;
        store_pack<PACK>(dx + walk.offset, gradients);
    }
}
