// CUDA's words for a CPU. The threads of a block are fibers of one thread of the system; each runs until it waits for
// the others, in an order that a seed decides. What a kernel gets wrong shows: a barrier that is missing (other seeds
// give other results), one that not all threads reach (it says so and stops), shared memory that nobody wrote (NaN).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#include <sys/mman.h>

#define __global__
#define __device__ static  // and not inline, see the end: shared memory has a section of its own, which can't hold both
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("cuda_shared")))

extern "C" char __start_cuda_shared[] __attribute__((weak));
extern "C" char __stop_cuda_shared[] __attribute__((weak));

struct dim3 { unsigned int x = 1, y = 1, z = 1; };

static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

// -- fibers: what a function may count on finding again is pushed on the old stack and popped from the new one --------

extern "C" void emulator_switch(void **save, void *stack);
asm(R"(
.text
.type emulator_switch, @function
emulator_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");

enum State { READY, AT_BLOCK, AT_WARP, DONE };
struct Fiber {
    void *stack;   // where it goes on; null before it has begun
    int slot;      // which of the stacks it is on
    State state;
    dim3 index;
    uint64_t lane; // what it gives the others of its warp
};

constexpr size_t STACK = 1 << 16;
static char *stacks = nullptr;
static std::vector<Fiber> fibers;
static std::vector<int> unused;  // stacks; the one that was given back last is still in the cache
static std::vector<int> order;
static void *home;
static int current;
static void (*body)();

[[noreturn]] inline void fail(const char *text) {
    std::fprintf(stderr, "emulated CUDA: %s (block %u %u %u, thread %d)\n", text, blockIdx.x, blockIdx.y, blockIdx.z, current);
    std::abort();
}

inline void wait(State state) {
    fibers[current].state = state;
    emulator_switch(&fibers[current].stack, home);
}

static void start() {
    body();
    wait(DONE);
}

// Gives a fiber a stack as emulator_switch finds it: six registers, the address it returns to, and one more that keeps the
// stack aligned as it is after a call.
inline void begin(Fiber &fiber) {
    fiber.slot = unused.back();
    unused.pop_back();
    void **top = (void **)(stacks + STACK * (fiber.slot + 1)) - 8;
    for (int r = 0; r < 6; r++) top[r] = nullptr;
    top[6] = (void *)start;
    top[7] = nullptr;
    fiber.stack = top;
}

inline uint64_t next_random(uint64_t &s) { s ^= s << 13; s ^= s >> 7; s ^= s << 17; return s; }

// Lets those go on who wait for a barrier that everybody has reached.
inline bool release() {
    int count = (int)fibers.size(), at_block = 0, done = 0;
    bool any = false;
    for (auto &f : fibers) { at_block += f.state == AT_BLOCK; done += f.state == DONE; }
    if (at_block && at_block + done == count) {
        for (auto &f : fibers) if (f.state == AT_BLOCK) f.state = READY;
        return true;
    }
    for (int first = 0; first < count; first += 32) {
        int size = std::min(32, count - first), here = 0;
        for (int i = first; i < first + size; i++) here += fibers[i].state == AT_WARP;
        if (here == size) {
            for (int i = first; i < first + size; i++) fibers[i].state = READY;
            any = true;
        }
    }
    return any;
}

inline void run_block(uint64_t &seed) {
    int count = blockDim.x * blockDim.y * blockDim.z;
    if (count < 1 || count > 1024) fail("a block has 1 to 1024 threads");
    if (!stacks) {
        stacks = (char *)mmap(nullptr, STACK * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stacks == MAP_FAILED) fail("no memory for stacks");
    }
    if (__start_cuda_shared) std::memset(__start_cuda_shared, 0xff, __stop_cuda_shared - __start_cuda_shared);
    fibers.assign(count, Fiber{});
    order.resize(count);
    unused.clear();
    for (int i = 0; i < count; i++) {
        fibers[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
        order[i] = i;
        unused.push_back(count - 1 - i);
    }
    while (true) {
        for (int i = count - 1; seed && i > 0; i--) std::swap(order[i], order[next_random(seed) % (i + 1)]);
        bool ran = false, all_done = true;
        for (int i : order) {
            if (fibers[i].state == READY) {
                current = i;
                threadIdx = fibers[i].index;
                if (!fibers[i].stack) begin(fibers[i]);
                emulator_switch(&home, fibers[i].stack);
                if (fibers[i].state == DONE) unused.push_back(fibers[i].slot);
                ran = true;
            }
        }
        for (auto &f : fibers) all_done = all_done && f.state == DONE;
        if (all_done) return;
        if (!release() && !ran) fail("threads wait for others that will never come");
    }
}

template <class... A> struct Call {
    static void (*function)(A...);
    static std::tuple<A...> *arguments;
    static void run() { std::apply(function, *arguments); }
    template <size_t... I> static std::tuple<A...> read(void **from, std::index_sequence<I...>) {
        return std::tuple<A...>(*(A *)from[I]...);
    }
};
template <class... A> void (*Call<A...>::function)(A...);
template <class... A> std::tuple<A...> *Call<A...>::arguments;

template <class... A>
void launch(void (*function)(A...), void **from, const unsigned int *grid, const unsigned int *block, uint64_t seed) {
    auto arguments = Call<A...>::read(from, std::index_sequence_for<A...>{});
    Call<A...>::function = function;
    Call<A...>::arguments = &arguments;
    body = Call<A...>::run;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    uint64_t blocks = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
    bool backwards = seed % 2;  // the order of the blocks is nobody's business either
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t b = backwards ? blocks - 1 - i : i;
        blockIdx = {(unsigned)(b % gridDim.x), (unsigned)(b / gridDim.x % gridDim.y), (unsigned)(b / gridDim.x / gridDim.y)};
        run_block(seed);
    }
}

// What a kernel's parameters are: 'p' a pointer, 'f' float, 'd' double, 'i' and 'u' integers of so many bytes.
template <class T> std::string kind() {
    if (std::is_pointer_v<T>) return "p8";
    if (std::is_floating_point_v<T>) return sizeof(T) == 4 ? "f4" : "f8";
    return (std::is_signed_v<T> ? "i" : "u") + std::to_string(sizeof(T));
}

template <class... A> void describe(void (*)(A...), char *into) {
    std::string text;
    ((text += kind<A>() + " "), ...);
    std::strcpy(into, text.c_str());
}

template <class T> T exchange(T value, int lane) {
    static_assert(sizeof(T) <= 8);
    std::memcpy(&fibers[current].lane, &value, sizeof(T));
    wait(AT_WARP);
    int first = current / 32 * 32;
    std::memcpy(&value, &fibers[first + lane].lane, sizeof(T));
    wait(AT_WARP);  // nobody may write the next value before all have read this one
    return value;
}

inline void whole(unsigned int mask) { if (mask != 0xffffffffu) fail("only whole warps are emulated"); }

}  // namespace emulator

inline void __syncthreads() { emulator::wait(emulator::AT_BLOCK); }
inline void __syncwarp(unsigned int mask = 0xffffffffu) { emulator::whole(mask); emulator::wait(emulator::AT_WARP); }

template <class T> T __shfl_xor_sync(unsigned int mask, T x, int by) {
    emulator::whole(mask);
    return emulator::exchange(x, (emulator::current % 32) ^ by);
}

inline float __uint_as_float(unsigned int bits) { float x; std::memcpy(&x, &bits, 4); return x; }
inline unsigned int __float_as_uint(float x) { unsigned int bits; std::memcpy(&bits, &x, 4); return bits; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __dadd_rn(double x, double y) { return x + y; }
inline float __fdividef(float x, float y) { return x / y; }
using std::max;
using std::min;

// nvidia.cuh's place
inline float float_of_half_bits(unsigned short bits) { _Float16 x; std::memcpy(&x, &bits, 2); return (float)x; }
inline unsigned short half_bits_of_float(float x) { _Float16 h = (_Float16)x; unsigned short bits; std::memcpy(&bits, &h, 2); return bits; }
inline unsigned short bfloat16_bits_of_float(float x) {
    unsigned int bits = __float_as_uint(x);
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? 0x7fff : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
inline unsigned int bfloat16_bits_of_floats(float first, float second) {
    return (unsigned int)bfloat16_bits_of_float(second) << 16 | bfloat16_bits_of_float(first);
}
inline unsigned int half_bits_of_floats(float first, float second) {
    return (unsigned int)half_bits_of_float(second) << 16 | half_bits_of_float(first);
}

namespace emulator {

// Lets every lane look at what all lanes of its warp point at, between two barriers.
template <class T, class Use> void with_all(const T *mine, Use use) {
    std::memcpy(&fibers[current].lane, &mine, sizeof(mine));
    wait(AT_WARP);
    use([first = current / 32 * 32](int lane) {
        const T *its;
        std::memcpy(&its, &fibers[first + lane].lane, sizeof(its));
        return its;
    });
    wait(AT_WARP);
}

inline float low(unsigned int pair, bool bfloat) { return bfloat ? __uint_as_float(pair << 16) : float_of_half_bits(pair); }
inline float high(unsigned int pair, bool bfloat) { return bfloat ? __uint_as_float(pair & 0xffff0000u) : float_of_half_bits(pair >> 16); }

// Each lane computes its part of c from the parts of a and b that other lanes hold.
inline void multiply(float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1, bool bfloat) {
    const unsigned int mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    int g = current % 32 / 4, t = current % 4;
    with_all(mine, [&](auto of) {
        for (int i = 0; i < 4; i++) {
            int row = i / 2, column = 2 * t + i % 2;  // of c; the rows g and g + 8 are numbers 0 and 1
            for (int half = 0; half < 2; half++) {    // of the 16 terms
                for (int u = 0; u < 4; u++) {
                    unsigned int x = of(4 * g + u)[2 * half + row], y = of(4 * column + u)[4 + half];
                    c[i] += low(x, bfloat) * low(y, bfloat) + high(x, bfloat) * high(y, bfloat);
                }
            }
        }
    });
}

inline void check_shared(const void *where) {
    if ((uintptr_t)where % 16) fail("a load from shared memory doesn't start on 16 bytes");
    bool shared = where >= (void *)__start_cuda_shared && (const char *)where + 16 <= __stop_cuda_shared;
    if (!shared) fail("a load from shared memory is from elsewhere");
}

inline void load(unsigned int (&x)[4], const void *row, bool transposed) {
    check_shared(row);
    int g = current % 32 / 4, t = current % 4;
    with_all((const unsigned short *)row, [&](auto of) {
        for (int i = 0; i < 4; i++) {
            unsigned int first = transposed ? of(8 * i + 2 * t)[g] : of(8 * i + g)[2 * t];
            unsigned int second = transposed ? of(8 * i + 2 * t + 1)[g] : of(8 * i + g)[2 * t + 1];
            x[i] = second << 16 | first;
        }
    });
}

}  // namespace emulator

inline void multiply_bfloat16(float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    emulator::multiply(c, a, b0, b1, true);
}
inline void multiply_half(float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    emulator::multiply(c, a, b0, b1, false);
}
inline void load_again(float (&x)[4], const float *where) {
    emulator::check_shared(where);
    std::memcpy(x, where, sizeof(x));
}
inline void load_matrices(unsigned int (&x)[4], const void *row) { emulator::load(x, row, false); }
inline void load_transposed_matrices(unsigned int (&x)[4], const void *row) { emulator::load(x, row, true); }

#define inline
