#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <stddef.h>
#include "driver_types.h"

/* A driver of CUDA, its runtime and cuBLAS, that do nothing and count what they are asked for; see null.py.
 * What is captured into a graph is counted with the graph; each launch of a graph is one launch. */

/* ---- counters ---- */
long long fk_launches, fk_gemms, fk_syncs, fk_h2d, fk_d2h, fk_d2d, fk_memset, fk_h2d_bytes, fk_d2h_bytes, fk_malloc, fk_hostalloc, fk_events, fk_rtlaunch, fk_setstream, fk_evsync, fk_evquery, fk_setmath, fk_malloc_bytes;
typedef struct { long long kernels, products, copies; } graph_t;
static graph_t graphs[4096]; static int ngraphs = 1; static void *fk_capturing = 0;  /* the stream that is captured */
static intptr_t nstreams = 0x5000;
long long fk_graphs, fk_graph_kernels, fk_graph_products, fk_graph_copies, fk_capture_syncs;
#define CAPTURED(stream, what) if (fk_capturing && (stream) == fk_capturing) { graphs[ngraphs].what++; return 0; }
static void *stream_of[4096]; static intptr_t nhandles = 1;  /* streams of handles of cuBLAS */
static uintptr_t next = 0x700000000000ull;

/* ---- driver ---- */
int cuGetErrorName(int e, const char **p) { *p = "CUDA_FAKE"; return 0; }
int cuGetErrorString(int e, const char **p) { *p = "fake"; return 0; }
int cuInit(unsigned f) { return 0; }
int cuDriverGetVersion(int *v) { *v = 12090; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
int cuCtxGetCurrent(void **p) { *p = (void*)1; return 0; }
int cuCtxSetCurrent(void *p) { return 0; }
int cuCtxCreate_v2(void **p, unsigned f, int d) { *p = (void*)1; return 0; }
int cuCtxDestroy_v2(void *p) { return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuModuleLoad(void **m, char *f) { *m = (void*)2; return 0; }
int cuModuleLoadData(void **m, void *img) { *m = (void*)2; return 0; }
int cuModuleUnload(void *m) { return 0; }
int cuModuleGetFunction(void **f, void *m, char *name) { *f = (void*)4; return 0; }
int cuModuleGetGlobal_v2(void **d, size_t *b, void *m, char *n) { *d = (void*)next; if (b) *b = 8; return 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sm, void *s, void **kp, void **ex) {
    if (gx == 0 || gy == 0 || gz == 0 || gx > 2147483647u || gy > 65535 || gz > 65535 || bx*by*bz > 1024) return 1;
    CAPTURED(s, kernels) fk_launches++; return 0; }
int cuLaunchCooperativeKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sm, void *s, void **kp) { CAPTURED(s, kernels) fk_launches++; return 0; }
int cuFuncGetAttribute(int *pi, int a, void *f) { *pi = 32; return 0; }
int cuFuncSetAttribute(void *f, int a, int v) { return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int b, size_t s) { *n = 4; return 0; }
int cuOccupancyMaxPotentialBlockSize(int *g, int *b, void *f, void *c, size_t s, int l) { *g = 528; *b = 256; return 0; }
int cuStreamGetCtx(void *s, void **c) { *c = (void*)1; return 0; }
int cuLinkCreate_v2(unsigned n, void *o, void **v, void **s) { *s = (void*)3; return 0; }
int cuLinkAddData_v2() { return 0; } int cuLinkAddFile_v2() { return 0; }
int cuLinkComplete(void *s, void **c, size_t *z) { *c = "x"; *z = 1; return 0; }
int cuLinkDestroy(void *s) { return 0; }

void fk_reset(void) { fk_launches=fk_gemms=fk_syncs=fk_h2d=fk_d2h=fk_d2d=fk_memset=fk_h2d_bytes=fk_d2h_bytes=fk_malloc=fk_hostalloc=fk_events=fk_rtlaunch=fk_setstream=fk_evsync=fk_evquery=fk_setmath=fk_malloc_bytes=fk_graphs=fk_graph_kernels=fk_graph_products=fk_graph_copies=fk_capture_syncs=0; }

/* ---- runtime, patched over the static one ---- */
#define R int
R f_cudaGetDevice(int *d) { *d = 0; return 0; }
R f_cudaSetDevice(int d) { return 0; }
R f_cudaGetDeviceCount(int *n) { *n = 1; return 0; }
R f_cudaDriverGetVersion(int *v) { *v = 12090; return 0; }
R f_cudaRuntimeGetVersion(int *v) { *v = 12090; return 0; }
R f_cudaDeviceGetAttribute(int *v, int a, int d) {
    switch (a) { case 75: *v = 9; break; case 76: *v = 0; break; case 16: *v = 132; break; case 1: *v = 1024; break; case 2: case 3: *v = 1024; break; case 4: *v = 64; break;
      case 5: *v = 2147483647; break; case 6: case 7: *v = 65535; break; case 8: *v = 49152; break; case 10: *v = 32; break; case 39: *v = 2048; break; case 81: *v = 233472; break; case 97: *v = 232448; break; case 38: *v = 52428800; break; case 12: *v = 65536; break; case 115: *v = 1; break; default: *v = 0; } return 0; }
R f_cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int d) { memset(p, 0, sizeof *p); strcpy(p->name, "fake H200"); p->major = 9; p->minor = 0; p->multiProcessorCount = 132; p->totalGlobalMem = 150ull<<30; p->sharedMemPerBlock = 49152; p->warpSize = 32; p->maxThreadsPerBlock = 1024; return 0; }
R f_cudaMalloc(void **p, size_t n) { fk_malloc++; fk_malloc_bytes += n; *p = (void*)next; next += (n + 511) / 512 * 512; return 0; }
R f_cudaFree(void *p) { return 0; }
R f_cudaMallocAsync(void **p, size_t n, void *s) { return f_cudaMalloc(p, n); }
R f_cudaFreeAsync(void *p, void *s) { return 0; }
R f_cudaHostAlloc(void **p, size_t n, unsigned f) { fk_hostalloc++; *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096); return 0; }
R f_cudaFreeHost(void *p) { free(p); return 0; }
R f_cudaMemGetInfo(size_t *f, size_t *t) { *f = 139ull<<30; *t = 141ull<<30; return 0; }
static int isdev(const void *p) { return (uintptr_t)p >= 0x700000000000ull && (uintptr_t)p < next; }
static void count(void *d, const void *s, size_t n, int k, void *st) {
    if (fk_capturing && st == fk_capturing) { graphs[ngraphs].copies++; return; }
    if (k == 1) { fk_h2d++; fk_h2d_bytes += n; } else if (k == 2) { fk_d2h++; fk_d2h_bytes += n; memset(d, 0, n); } else fk_d2d++; }
R f_cudaMemcpy(void *d, const void *s, size_t n, int k) { count(d, s, n, k, 0); fk_syncs++; return 0; }
R f_cudaMemcpyAsync(void *d, const void *s, size_t n, int k, void *st) { count(d, s, n, k, st); return 0; }
R f_cudaMemset(void *d, int v, size_t n) { fk_memset++; return 0; }
R f_cudaMemsetAsync(void *d, int v, size_t n, void *s) { CAPTURED(s, copies) fk_memset++; return 0; }
R f_cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) { memset(a, 0, sizeof *a); if (isdev(p)) { a->type = 2; a->devicePointer = (void*)p; } return 0; }
R f_cudaStreamCreate(void **s) { *s = (void*)nstreams++; return 0; }
R f_cudaStreamCreateWithFlags(void **s, unsigned f) { *s = (void*)nstreams++; return 0; }
R f_cudaStreamCreateWithPriority(void **s, unsigned f, int p) { *s = (void*)nstreams++; return 0; }
R f_cudaStreamDestroy(void *s) { return 0; }
R f_cudaStreamSynchronize(void *s) { if (fk_capturing && s == fk_capturing) { fk_capture_syncs++; return 900; } fk_syncs++; return 0; }
R f_cudaDeviceSynchronize(void) { if (fk_capturing) { fk_capture_syncs++; return 900; } fk_syncs++; return 0; }
R f_cudaStreamQuery(void *s) { return 0; }
R f_cudaStreamWaitEvent(void *s, void *e, unsigned f) { return 0; }
R f_cudaStreamIsCapturing(void *s, int *p) { *p = fk_capturing && s == fk_capturing; return 0; }
R f_cudaStreamBeginCapture(void *s, int mode) { if (!s || fk_capturing) return 900; fk_capturing = s; memset(&graphs[ngraphs], 0, sizeof(graph_t)); return 0; }
R f_cudaStreamEndCapture(void *s, void **g) { if (!fk_capturing) return 904; fk_capturing = 0; *g = (void *)(intptr_t)ngraphs++; return 0; }
R f_cudaGraphInstantiate(void **x, void *g, unsigned long long flags) { *x = g; return 0; }
R f_cudaGraphDestroy(void *g) { return 0; }
R f_cudaGraphExecDestroy(void *g) { return 0; }
R f_cudaGraphUpload(void *g, void *s) { return 0; }
R f_cudaGraphLaunch(void *g, void *s) { graph_t *x = &graphs[(intptr_t)g]; fk_graphs++; fk_launches++; fk_graph_kernels += x->kernels; fk_graph_products += x->products; fk_graph_copies += x->copies; return 0; }
R f_cudaEventCreate(void **e) { fk_events++; *e = (void*)8; return 0; }
R f_cudaEventCreateWithFlags(void **e, unsigned f) { fk_events++; *e = (void*)8; return 0; }
R f_cudaEventDestroy(void *e) { return 0; }
R f_cudaEventRecord(void *e, void *s) { return 0; }
R f_cudaEventQuery(void *e) { fk_evquery++; return 0; }
R f_cudaEventSynchronize(void *e) { fk_evsync++; fk_syncs++; return 0; }
R f_cudaEventElapsedTime(float *t, void *a, void *b) { *t = 1; return 0; }
R f_cudaGetLastError(void) { return 0; }
R f_cudaPeekAtLastError(void) { return 0; }
R f_cudaLaunchKernel(const void *f, unsigned long long a, unsigned b, unsigned long long c, unsigned d, void **args, size_t sm, void *s) { CAPTURED(s, kernels) fk_rtlaunch++; return 0; }
R f_cudaLaunchKernelExC(const void *c, const void *f, void **a) { CAPTURED(fk_capturing, kernels) fk_rtlaunch++; return 0; }
R f_cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) { memset(a, 0, sizeof *a); a->maxThreadsPerBlock = 1024; a->ptxVersion = 90; a->binaryVersion = 90; return 0; }
R f_cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t s) { *n = 4; return 0; }
R f_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s, unsigned fl) { *n = 4; return 0; }
R f_cudaDeviceGetDefaultMemPool(void **p, int d) { *p = (void*)9; return 0; }

/* ---- cuBLAS, preloaded ---- */
R cublasCreate_v2(void **h) { *h = (void*)nhandles++; return 0; }
R cublasDestroy_v2(void *h) { return 0; }
R cublasSetStream_v2(void *h, void *s) { stream_of[(intptr_t)h] = s; fk_setstream++; return 0; }
R cublasGetStream_v2(void *h, void **s) { *s = 0; return 0; }
R cublasSetWorkspace_v2(void *h, void *w, size_t n) { return 0; }
R cublasSetMathMode(void *h, int m) { fk_setmath++; return 0; }
R cublasGetMathMode(void *h, int *m) { *m = 0; return 0; }
R cublasSetPointerMode_v2(void *h, int m) { return 0; }
R cublasGetPointerMode_v2(void *h, int *m) { *m = 0; return 0; }
R cublasGemmEx(void *h) { CAPTURED(stream_of[(intptr_t)h], products) fk_gemms++; return 0; }
R cublasGemmStridedBatchedEx(void *h) { CAPTURED(stream_of[(intptr_t)h], products) fk_gemms++; return 0; }
R cublasSgemm_v2(void *h) { CAPTURED(stream_of[(intptr_t)h], products) fk_gemms++; return 0; }
R cublasSgemmStridedBatched(void *h) { CAPTURED(stream_of[(intptr_t)h], products) fk_gemms++; return 0; }
R cublasSgemmBatched(void *h) { CAPTURED(stream_of[(intptr_t)h], products) fk_gemms++; return 0; }
R cublasGemmBatchedEx(void *h) { CAPTURED(stream_of[(intptr_t)h], products) fk_gemms++; return 0; }
R cublasDgemm_v2(void *h) { CAPTURED(stream_of[(intptr_t)h], products) fk_gemms++; return 0; }
R cublasDgemmStridedBatched(void *h) { CAPTURED(stream_of[(intptr_t)h], products) fk_gemms++; return 0; }
R cublasSgemmEx(void *h) { CAPTURED(stream_of[(intptr_t)h], products) fk_gemms++; return 0; }
