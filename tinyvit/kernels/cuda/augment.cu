// All changes to the images of a batch, one block an image: what `data.augment.changed` does, operation by operation and
// rounded alike. A product by __fmul_rn is rounded before it is added to anything.
//
// Of an image, a thread always has the same pixels, in all planes (channels, and frames of a video), so only operations
// that look at other pixels need a barrier. The image is kept in its place in the result, which the cache holds.

constexpr int BLOCK = 256;    // threads, and levels that equalize counts: one each
constexpr int TILE = 1024;    // pixels that all threads look at together
constexpr int PLACES = 10;    // of a change's numbers: six of the matrix, four of the rectangle

enum Operation {              // as in data.policy.OPERATIONS
    IDENTITY, AUTOCONTRAST, EQUALIZE, BRIGHTNESS, CONTRAST, SATURATION, SHARPNESS, POSTERIZE, SOLARIZE
};

struct Image {
    float *pixels;            // planes, height, width
    int planes, height, width, size;
};

__device__ inline float &at(Image image, int plane, int pixel) { return image.pixels[plane * image.size + pixel]; }

#define FOR_EACH_PIXEL(p) for (int p = threadIdx.x; p < image.size; p += BLOCK)
#define FOR_EACH_PLANE(c) for (int c = 0; c < image.planes; c++)

__device__ inline float clip(float x, float most) { return fminf(fmaxf(x, 0.0f), most); }

// -- geometry: data.geometry.resample ---------------------------------------------------------------------------------

// Where a row of the matrix says that a pixel is read, counted from a frame of one pixel around `side` of them.
__device__ inline int read_from(const double *row, int y, int x, int height, int width, int side) {
    double offset = __dadd_rn(row[2], (side - 1) / 2.0);
    double down = __dadd_rn(__dmul_rn(row[0], y - (height - 1) / 2.0), __dadd_rn(offset, 1.5));
    double along = __dmul_rn(row[1], x - (width - 1) / 2.0);
    return (int)clip((float)down + (float)along, side + 1);
}

__device__ inline void move(const unsigned char *from, const double *matrix, Image image) {
    FOR_EACH_PIXEL(p) {
        int y = p / image.width, x = p % image.width;
        int row = read_from(matrix, y, x, image.height, image.width, image.height);
        int column = read_from(matrix + 3, y, x, image.height, image.width, image.width);
        bool inside = row >= 1 && row <= image.height && column >= 1 && column <= image.width;
        int place = (row - 1) * image.width + column - 1;
        FOR_EACH_PLANE(c) at(image, c, p) = inside ? (float)from[c * image.size + place] : 0.0f;
    }
}

// -- colour: data.colour, on levels from 0 to 255 ---------------------------------------------------------------------

__device__ inline float whole(float level) { return floorf(clip(level, 255.0f) + 0.00390625f); }

__device__ inline float grey(Image image, int p) {
    if (image.planes == 1) return at(image, 0, p);
    float red_green = __fmul_rn(0.299f, at(image, 0, p)) + __fmul_rn(0.587f, at(image, 1, p));
    return red_green + __fmul_rn(0.114f, at(image, 2, p));
}

__device__ inline float blend(float without, float level, float factor) {
    return clip(without + __fmul_rn(factor, level - without), 255.0f);
}

// Over all threads of the block, in double precision: the sum of an image's levels is exact, or nearly so.
__device__ inline double block_total(double x) {
    __shared__ double of_warp[BLOCK / 32];
    for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(ALL, x, offset);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0.0;
    for (int warp = 0; warp < BLOCK / 32; warp++) x += of_warp[warp];
    return x;
}

__device__ inline void contrast(Image image, float factor) {
    double sum = 0.0;
    FOR_EACH_PIXEL(p) sum += grey(image, p);
    float mean = (float)(block_total(sum) / image.size);
    FOR_EACH_PIXEL(p) FOR_EACH_PLANE(c) at(image, c, p) = blend(mean, at(image, c, p), factor);
}

__device__ inline void saturation(Image image, float factor) {
    if (image.planes == 1) return;
    FOR_EACH_PIXEL(p) {
        float without = grey(image, p);
        FOR_EACH_PLANE(c) at(image, c, p) = blend(without, at(image, c, p), factor);
    }
}

__device__ inline void autocontrast(Image image) {
    FOR_EACH_PLANE(c) {
        float low = infinity(), high = -infinity();
        FOR_EACH_PIXEL(p) {
            low = fminf(low, at(image, c, p));
            high = fmaxf(high, at(image, c, p));
        }
        low = -block_max(-low);
        high = block_max(high);
        if (high > low) FOR_EACH_PIXEL(p) at(image, c, p) = (at(image, c, p) - low) * (255.0f / (high - low));
    }
}

__device__ inline float sum_of_three(float *first, int stride) { return first[0] + first[stride] + first[2 * stride]; }

// `copy` has room for an image.
__device__ inline void sharpness(Image image, float *copy, float factor) {
    int width = image.width;
    __syncthreads();          // the copy of an operation before this one may still be read
    FOR_EACH_PIXEL(p) FOR_EACH_PLANE(c) copy[c * image.size + p] = at(image, c, p);
    __syncthreads();
    FOR_EACH_PIXEL(p) {
        int y = p / width, x = p % width;
        bool inside = y > 0 && y < image.height - 1 && x > 0 && x < width - 1;
        FOR_EACH_PLANE(c) {
            float *middle = copy + c * image.size + p, level = *middle, smooth = level;
            if (inside) {
                float *above = middle - width;
                float box = sum_of_three(above - 1, width) + sum_of_three(above, width) + sum_of_three(above + 1, width);
                smooth = (box + __fmul_rn(4.0f, level)) * (float)(1.0 / 13.0);
            }
            at(image, c, p) = blend(smooth, level, factor);
        }
    }
}

__device__ inline void equalize(Image image) {
    __shared__ unsigned char levels[TILE];
    __shared__ int below[BLOCK];
    __shared__ int step;
    int level = threadIdx.x;
    FOR_EACH_PLANE(c) {
        int count = 0;        // of pixels that have this thread's level
        for (int first = 0; first < image.size; first += TILE) {
            int pixels = min(TILE, image.size - first);
            __syncthreads();
            // A multiple of a block's threads lies in front of a tile: they are this thread's own pixels.
            for (int i = threadIdx.x; i < pixels; i += BLOCK) levels[i] = (unsigned char)whole(at(image, c, first + i));
            __syncthreads();
            for (int i = 0; i < pixels; i++) count += levels[i] == level;
        }
        below[level] = count;
        __syncthreads();
        for (int offset = 1; offset < BLOCK; offset *= 2) {
            int more = level >= offset ? below[level - offset] : 0;
            __syncthreads();
            below[level] += more;
            __syncthreads();
        }
        int up_to = below[level];
        if (count > 0 && up_to == image.size) step = (up_to - count) / 255;  // the brightest level, one thread's
        __syncthreads();
        if (step > 0) {
            below[level] = min((up_to - count + step / 2) / step, 255);
            __syncthreads();
            FOR_EACH_PIXEL(p) at(image, c, p) = below[(int)whole(at(image, c, p))];
        }
        __syncthreads();      // all have read `step` and the table
    }
}

__device__ inline void recolour(Image image, float *copy, int operation, float amount, float to_levels, float back) {
    if (operation < AUTOCONTRAST || operation > SOLARIZE) return;  // nothing to do, or done by `move`
    FOR_EACH_PIXEL(p) FOR_EACH_PLANE(c) at(image, c, p) *= to_levels;
    if (operation == AUTOCONTRAST) autocontrast(image);
    else if (operation == EQUALIZE) equalize(image);
    else if (operation == CONTRAST) contrast(image, 1.0f + amount);
    else if (operation == SATURATION) saturation(image, 1.0f + amount);
    else if (operation == SHARPNESS) sharpness(image, copy, 1.0f + amount);
    else FOR_EACH_PIXEL(p) FOR_EACH_PLANE(c) {
        float level = at(image, c, p), step = (float)(1 << (int)rintf(amount));
        if (operation == BRIGHTNESS) level = clip(level * (1.0f + amount), 255.0f);
        else if (operation == SOLARIZE) level = whole(level) >= 256.0f - amount ? 255.0f - level : level;
        else if (step > 1.0f) level = floorf(whole(level) / step) * step;
        at(image, c, p) = level;
    }
    FOR_EACH_PIXEL(p) FOR_EACH_PLANE(c) at(image, c, p) *= back;
}

// The changes to an image are PLACES numbers, then its operations and their amounts. A channel has `frames` planes.
extern "C" __global__ void __launch_bounds__(256, 4) change_images(
    const unsigned char *images, const double *changes, const float *factor, const float *shift, float *y, float *copies,
    float to_levels, float back, long long operations, long long planes, long long frames, long long height,
    long long width
) {
    const double *change = changes + blockIdx.x * (PLACES + 2 * operations), *rectangle = change + 6;
    long long start = blockIdx.x * planes * height * width;
    Image image = {y + start, (int)planes, (int)height, (int)width, (int)(height * width)};
    move(images + start, change, image);
    for (int i = 0; i < operations; i++) {
        double operation = change[PLACES + i], amount = change[PLACES + operations + i];
        recolour(image, copies + start, (int)operation, (float)amount, to_levels, back);
    }
    FOR_EACH_PIXEL(p) {
        int row = p / image.width, column = p % image.width;
        bool erased = row >= rectangle[0] && row < rectangle[1] && column >= rectangle[2] && column < rectangle[3];
        FOR_EACH_PLANE(c) {
            int channel = c / (int)frames;
            float pixel = __fmul_rn(at(image, c, p), factor[channel]) - shift[channel];
            at(image, c, p) = erased ? 0.0f : pixel;
        }
    }
}
