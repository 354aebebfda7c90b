// The functions of cuBLAS that are called without CuPy, in C. They ask those of pretend_cublas.py.

#include <stddef.h>
typedef void *cublasHandle_t, *cudaStream_t;
typedef int cublasStatus_t, cublasOperation_t, cudaDataType, cublasComputeType_t, cublasGemmAlgo_t;

typedef int (*gemm_type)(
    void *, int, int, int, int, int, const void *, const void *, int, int, long long, const void *, int, int, long long,
    const void *, void *, int, int, long long, int, int, int
);
static gemm_type gemm;
static int (*set_stream)(void *, void *);
static int (*set_workspace)(void *, void *, size_t);

extern "C" void answer_by(
    gemm_type of_gemm, int (*of_stream)(void *, void *), int (*of_workspace)(void *, void *, size_t)
) {
    gemm = of_gemm;
    set_stream = of_stream;
    set_workspace = of_workspace;
}

extern "C" cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    return (cublasStatus_t)set_stream(handle, stream);
}

extern "C" cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t size) {
    return (cublasStatus_t)set_workspace(handle, workspace, size);
}

extern "C" cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void *alpha,
    const void *A, cudaDataType Atype, int lda, long long strideA, const void *B, cudaDataType Btype, int ldb,
    long long strideB, const void *beta, void *C, cudaDataType Ctype, int ldc, long long strideC, int count,
    cublasComputeType_t compute, cublasGemmAlgo_t algorithm
) {
    return (cublasStatus_t)gemm(
        handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB, beta, C, Ctype, ldc,
        strideC, count, compute, algorithm
    );
}

extern "C" cublasStatus_t cublasGemmEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void *alpha,
    const void *A, cudaDataType Atype, int lda, const void *B, cudaDataType Btype, int ldb, const void *beta, void *C,
    cudaDataType Ctype, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algorithm
) {
    return cublasGemmStridedBatchedEx(
        handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta, C, Ctype, ldc, 0, 1, compute,
        algorithm
    );
}
