/* cudnn.c: the stand-in for libcudnn.so.8 (TensorFlow 2.16, 2.17) and libcudnn.so.9 (since): descriptors of zeros, one
 * engine for every convolution, recurrent layers that need no room; nothing is computed. */
#include "launch.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MINOR (SOVERSION < 9 ? 9 : 8)
enum { BAD_PARAM = SOVERSION < 9 ? 3 : 2000, ALLOC_FAILED = SOVERSION < 9 ? 2 : 5003 };

EXPORT size_t cudnnGetVersion(void) { return SOVERSION * (SOVERSION < 9 ? 1000 : 10000) + MINOR * 100; }
EXPORT size_t cudnnGetCudartVersion(void) { return 12080; }
EXPORT const char *cudnnGetErrorString(int status) { return status ? "error" : "success"; }

API(cudnnGetProperty, int which, int *to)
{
    static const int version[] = {SOVERSION, MINOR, 0};
    if (which < 0 || which > 2 || !to)
        return BAD_PARAM;
    *to = version[which];
    return 0;
}

#define DOES_NOTHING(name) API(name, void) { return 0; }

static int give_zeros(void **to)
{
    *to = calloc(1, 1024);
    return *to ? 0 : ALLOC_FAILED;
}

#define DESCRIPTOR(name)                                            \
    API(cudnnCreate##name, void **to) { return give_zeros(to); }    \
    API(cudnnDestroy##name, void *descriptor) { free(descriptor); return 0; }

DESCRIPTOR()
DESCRIPTOR(ActivationDescriptor)
DESCRIPTOR(ConvolutionDescriptor)
DESCRIPTOR(DropoutDescriptor)
DESCRIPTOR(FilterDescriptor)
DESCRIPTOR(LRNDescriptor)
DESCRIPTOR(PoolingDescriptor)
DESCRIPTOR(RNNDataDescriptor)
DESCRIPTOR(RNNDescriptor)
DESCRIPTOR(TensorDescriptor)

DOES_NOTHING(cudnnSetStream)
DOES_NOTHING(cudnnGraphVersionCheck)
DOES_NOTHING(cudnnOpsVersionCheck)
DOES_NOTHING(cudnnSetActivationDescriptor)
DOES_NOTHING(cudnnSetConvolutionNdDescriptor)
DOES_NOTHING(cudnnSetConvolutionGroupCount)
DOES_NOTHING(cudnnSetConvolutionMathType)
DOES_NOTHING(cudnnSetDropoutDescriptor)
DOES_NOTHING(cudnnSetFilterNdDescriptor)
DOES_NOTHING(cudnnSetLRNDescriptor)
DOES_NOTHING(cudnnSetPoolingNdDescriptor)
DOES_NOTHING(cudnnSetTensorNdDescriptor)
DOES_NOTHING(cudnnSetTensor4dDescriptor)
LAUNCHES(cudnnPoolingForward)
LAUNCHES(cudnnPoolingBackward)
LAUNCHES(cudnnActivationForward)
LAUNCHES(cudnnActivationBackward)
LAUNCHES(cudnnSoftmaxForward)
LAUNCHES(cudnnTransformTensor)
LAUNCHES(cudnnAddTensor)
LAUNCHES(cudnnLRNCrossChannelForward)
LAUNCHES(cudnnLRNCrossChannelBackward)
LAUNCHES(cudnnBatchNormalizationForwardInference)
LAUNCHES(cudnnBatchNormalizationForwardTraining)
LAUNCHES(cudnnBatchNormalizationForwardTrainingEx)
LAUNCHES(cudnnBatchNormalizationBackward)
LAUNCHES(cudnnBatchNormalizationBackwardEx)

API(cudnnGetStream, void *h, void **to) { *to = NULL; return 0; }

/* --- recurrent layers --- */

DOES_NOTHING(cudnnSetRNNDescriptor_v6)
DOES_NOTHING(cudnnSetRNNDataDescriptor)
DOES_NOTHING(cudnnSetRNNMatrixMathType)
DOES_NOTHING(cudnnSetRNNPaddingMode)
DOES_NOTHING(cudnnSetRNNProjectionLayers)
LAUNCHES(cudnnRNNForward)
LAUNCHES(cudnnRNNForwardInference)
LAUNCHES(cudnnRNNForwardInferenceEx)
LAUNCHES(cudnnRNNForwardTraining)
LAUNCHES(cudnnRNNForwardTrainingEx)
LAUNCHES(cudnnRNNBackwardData)
LAUNCHES(cudnnRNNBackwardDataEx)
LAUNCHES(cudnnRNNBackwardData_v8)
LAUNCHES(cudnnRNNBackwardWeights)
LAUNCHES(cudnnRNNBackwardWeightsEx)
LAUNCHES(cudnnRNNBackwardWeights_v8)

enum { SOME = 1 << 20 }; /* bytes: an arbitrary size for a layer */

static int give_size(size_t *to)
{
    if (to)
        *to = SOME;
    return 0;
}

API(cudnnDropoutGetStatesSize, void *h, size_t *to) { return give_size(to); }
API(cudnnGetRNNWeightSpaceSize, void *h, void *rnn, size_t *to) { return give_size(to); }
API(cudnnGetRNNParamsSize, void *h, void *rnn, void *x, size_t *to, int type) { return give_size(to); }
API(cudnnGetRNNWorkspaceSize, void *h, void *rnn, int length, void *x, size_t *to) { return give_size(to); }
API(cudnnGetRNNTrainingReserveSize, void *h, void *rnn, int length, void *x, size_t *to) { return give_size(to); }

API(cudnnGetRNNTempSpaceSizes, void *h, void *rnn, int mode, void *x, size_t *work, size_t *reserve)
{
    give_size(reserve);
    return give_size(work);
}

/* All of a layer's weights have the layer's address. */
API(cudnnGetRNNWeightParams, void *h, void *rnn, int layer, size_t size, const void *space, int id, void *m,
    void **matrix, void *b, void **bias)
{
    *matrix = *bias = (void *)space;
    return 0;
}

/* A layer's settings are the one thing that is read back. */
struct rnn {
    int algorithm, cell, bias, direction, input, type, precision, math;
    int input_size, hidden_size, projection_size, layers;
    void *dropout;
    unsigned flags;
};

API(cudnnSetRNNDescriptor_v8, struct rnn *rnn, int algorithm, int cell, int bias, int direction, int input, int type,
    int precision, int math, int input_size, int hidden_size, int projection_size, int layers, void *dropout,
    unsigned flags)
{
    *rnn = (struct rnn){algorithm, cell, bias, direction, input, type, precision, math, input_size, hidden_size,
                        projection_size, layers, dropout, flags};
    return 0;
}

#define GIVE(to, value) ((to) ? (void)(*(to) = (value)) : (void)0)

API(cudnnGetRNNDescriptor_v8, const struct rnn *rnn, int *algorithm, int *cell, int *bias, int *direction, int *input,
    int *type, int *precision, int *math, int *input_size, int *hidden_size, int *projection_size, int *layers,
    void **dropout, unsigned *flags)
{
    GIVE(algorithm, rnn->algorithm);
    GIVE(cell, rnn->cell);
    GIVE(bias, rnn->bias);
    GIVE(direction, rnn->direction);
    GIVE(input, rnn->input);
    GIVE(type, rnn->type);
    GIVE(precision, rnn->precision);
    GIVE(math, rnn->math);
    GIVE(input_size, rnn->input_size);
    GIVE(hidden_size, rnn->hidden_size);
    GIVE(projection_size, rnn->projection_size);
    GIVE(layers, rnn->layers);
    GIVE(dropout, rnn->dropout);
    GIVE(flags, rnn->flags);
    return 0;
}

/* A weight has one element. */
API(cudnnGetTensorNdDescriptor, void *descriptor, int wanted, int *type, int *found, int *sizes, int *strides)
{
    *type = 0;
    *found = wanted;
    for (int i = 0; i < wanted; i++)
        sizes[i] = strides[i] = 1;
    return 0;
}

/* --- the graph interface, by which convolutions are planned: one engine configuration, which needs no workspace --- */

API(cudnnBackendCreateDescriptor, int type, void **to) { return give_zeros(to); }
API(cudnnBackendDestroyDescriptor, void *descriptor) { free(descriptor); return 0; }
DOES_NOTHING(cudnnBackendInitialize)
DOES_NOTHING(cudnnBackendSetAttribute)
DOES_NOTHING(cudnnBackendFinalize)
LAUNCHES(cudnnBackendExecute)

/* By cudnnBackendAttributeType_t: bytes of an element; all others are enums. */
static size_t size_of(int type)
{
    static const unsigned char sizes[] = {[0] = 8, [2] = 1, [3] = 8, [5] = 8, [6] = 8};
    return type >= 0 && type < (int)sizeof sizes && sizes[type] ? sizes[type] : 4;
}

API(cudnnBackendGetAttribute, void *descriptor, int attribute, int type, int64_t wanted, int64_t *count, void *to)
{
    enum { NUMERICAL_NOTE = 11, DESCRIPTOR_TYPE = 15, BEHAVIOR_NOTE = 21 };
    int64_t found = type == NUMERICAL_NOTE || type == BEHAVIOR_NOTE ? 0 : 1;
    if (count)
        *count = found;
    if (to && wanted >= found && found && type != DESCRIPTOR_TYPE)
        memset(to, 0, size_of(type));
    return 0;
}
