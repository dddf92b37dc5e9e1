// What a profiler loads into a program, for tests: it writes to the file $NVTX_LISTENER what the program says of its ranges,
// a line each: `domain NAME`, `push THREAD COUNT NAME`, `pop THREAD`. Made with NVIDIA's own headers, so that a program that
// has a structure or a constant wrong does not pass.
#define _GNU_SOURCE
#include <nvtx3/nvToolsExt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *out;

static nvtxDomainHandle_t NVTX_API create_domain(const char *name) {
  fprintf(out, "domain %s\n", name);
  return (nvtxDomainHandle_t)&out;
}

static nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t domain, const char *string) {
  return domain == (nvtxDomainHandle_t)&out ? (nvtxStringHandle_t)strdup(string) : NULL;
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range) {
  const int sound = domain == (nvtxDomainHandle_t)&out && range->version == NVTX_VERSION && range->size == NVTX_EVENT_ATTRIB_STRUCT_SIZE &&
                    range->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 && range->messageType == NVTX_MESSAGE_TYPE_REGISTERED;
  if (!sound) return fprintf(out, "unsound\n"), -1;
  fprintf(out, "push %d %llu %s\n", (int)gettid(), (unsigned long long)range->payload.ullValue, (const char *)range->message.registered);
  return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t domain) {
  (void)domain;
  fprintf(out, "pop %d\n", (int)gettid());
  return 0;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  const char *const path = getenv("NVTX_LISTENER");
  const NvtxExportTableCallbacks *const callbacks = table_of(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned size = 0;
  if (path == NULL || callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  if (size < NVTX_CBID_CORE2_SIZE || (out = fopen(path, "a")) == NULL) return 0;
  setlinebuf(out);
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)register_string;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
