/* cuda_graph.c: CUDA graphs, which XLA records its kernels in: they can be built and launched, and do as little as the
 * kernels would. What is captured was already done, at once, when the stream was asked for it. */
#include "cuda.h"

#include <stdlib.h>

struct graph { int nodes; };
typedef struct graph *CUgraph;
typedef void *CUnode;

/* A node is never inspected: it only must differ from the others. */
static int give_node(CUnode *to, CUgraph graph)
{
    static _Atomic uintptr_t last;
    NEED(to && graph);
    *to = (CUnode)(16 * ++last);
    graph->nodes++;
    return CUDA_OK;
}

static int give_graph(CUgraph *to)
{
    NEED(to && (*to = calloc(1, sizeof **to)));
    return CUDA_OK;
}

API(cuGraphCreate, CUgraph *to, unsigned flags) { BEGIN(-1); return give_graph(to); }
API(cuGraphDestroy, CUgraph graph) { BEGIN(-1); free(graph); return CUDA_OK; }
API(cuGraphClone, CUgraph *to, CUgraph of) { BEGIN(-1); return give_graph(to); }
API(cuGraphDebugDotPrint, CUgraph graph, const char *path, unsigned f) { BEGIN(-1); return CUDA_OK; }

static int count_nodes(CUgraph graph, CUnode *nodes, size_t *count)
{
    NEED(graph && count);
    for (size_t i = 0; nodes && i < *count; i++)
        nodes[i] = (CUnode)(16 * (i + 1));
    if (!nodes)
        *count = graph->nodes > 0 ? (size_t)graph->nodes : 1;
    return CUDA_OK;
}

API(cuGraphGetNodes, CUgraph graph, CUnode *nodes, size_t *count)
{
    BEGIN(-1);
    return count_nodes(graph, nodes, count);
}

API(cuGraphGetRootNodes, CUgraph graph, CUnode *nodes, size_t *count)
{
    BEGIN(-1);
    return count_nodes(graph, nodes, count);
}

/* All take the node's address, the graph, and its dependencies; the node's operation is ignored. */
#define ADDS(name) API(name, CUnode *to, CUgraph graph) { BEGIN(-1); return give_node(to, graph); }
ADDS(cuGraphAddKernelNode_v2)
ADDS(cuGraphAddMemcpyNode)
ADDS(cuGraphAddMemsetNode)
ADDS(cuGraphAddChildGraphNode)
ADDS(cuGraphAddEmptyNode)
ADDS(cuGraphAddHostNode)
ADDS(cuGraphAddEventRecordNode)
ADDS(cuGraphAddEventWaitNode)

enum { CONDITIONAL = 13 };

struct node_params {
    int type, reserved[3];
    uint64_t handle;
    int conditional_type;
    unsigned bodies;
    CUgraph *body; /* set here: the graphs of a loop's or a branch's bodies, which are never run */
};

static int add_node(CUnode *to, CUgraph graph, struct node_params *params)
{
    NEED(params);
    if (params->type == CONDITIONAL) {
        NEED((params->body = calloc(params->bodies, sizeof *params->body)));
        for (unsigned i = 0; i < params->bodies; i++)
            give_graph(&params->body[i]);
    }
    return give_node(to, graph);
}

API(cuGraphAddNode, CUnode *to, CUgraph graph, const CUnode *after, size_t n, struct node_params *params)
{
    BEGIN(-1);
    return add_node(to, graph, params);
}

API(cuGraphAddNode_v2, CUnode *to, CUgraph graph, const CUnode *after, const void *edges, size_t n,
    struct node_params *params)
{
    BEGIN(-1);
    return add_node(to, graph, params);
}

API(cuGraphConditionalHandleCreate, uint64_t *to, CUgraph graph) { BEGIN(-1); NEED(to); *to = 1; return CUDA_OK; }

API(cuGraphInstantiateWithFlags, CUgraph *to, CUgraph graph) { BEGIN(-1); return give_graph(to); }
API(cuGraphInstantiate_v2, CUgraph *to, CUgraph graph) { BEGIN(-1); return give_graph(to); }
API(cuGraphInstantiateWithParams, CUgraph *to, CUgraph graph) { BEGIN(-1); return give_graph(to); }
API(cuGraphExecDestroy, CUgraph graph) { BEGIN(-1); free(graph); return CUDA_OK; }
API(cuGraphUpload, CUgraph graph, CUstream s) { BEGIN(-1); return CUDA_OK; }
API(cuGraphLaunch, CUgraph graph, CUstream s) { BEGIN_CURRENT(c); return cuda_launched(c); }

#define DOES_NOTHING(name) API(name, void *of) { BEGIN(-1); return CUDA_OK; }
DOES_NOTHING(cuGraphAddDependencies)
DOES_NOTHING(cuGraphExecKernelNodeSetParams_v2)
DOES_NOTHING(cuGraphExecMemcpyNodeSetParams)
DOES_NOTHING(cuGraphExecMemsetNodeSetParams)
DOES_NOTHING(cuGraphExecChildGraphNodeSetParams)
DOES_NOTHING(cuGraphExecHostNodeSetParams)
DOES_NOTHING(cuGraphExecNodeSetParams)
DOES_NOTHING(cuGraphKernelNodeSetAttribute)
DOES_NOTHING(cuGraphKernelNodeCopyAttributes)
DOES_NOTHING(cuGraphNodeSetEnabled)

struct update_result { int outcome; CUnode wrong, because_of; };

API(cuGraphExecUpdate_v2, CUgraph to, CUgraph from, struct update_result *result)
{
    BEGIN(-1);
    if (result)
        *result = (struct update_result){0};
    return CUDA_OK;
}

/* --- capture: one at a time in a thread is all that XLA does --- */

static __thread CUgraph captured;

API(cuStreamBeginCapture_v2, CUstream s, int mode)
{
    BEGIN(-1);
    return give_graph(&captured);
}

API(cuStreamBeginCaptureToGraph, CUstream s, CUgraph graph)
{
    BEGIN(-1);
    NEED(graph);
    captured = graph;
    return CUDA_OK;
}

API(cuStreamEndCapture, CUstream s, CUgraph *to)
{
    BEGIN(-1);
    NEED(to && captured);
    *to = captured;
    captured->nodes++;
    captured = NULL;
    return CUDA_OK;
}

API(cuStreamIsCapturing, CUstream s, int *to) { BEGIN(-1); NEED(to); *to = captured ? 1 : 0; return CUDA_OK; }
