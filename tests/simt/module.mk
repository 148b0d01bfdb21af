# The CPU harness for device code and the tests that use it. Kernels are compiled by the test program itself (simt_build.c)
# into $(BUILD)/simt, one object a constant set, with the compiler of this build. The harness stands in for the thread
# sanitizer's runtime, so it does not exist in a SAN=thread build.
SIMT_SOURCES := $(filter-out tests/simt/test_%,$(sort $(wildcard tests/simt/*.c)))
SIMT_OBJECTS := $(patsubst tests/%.c,$(BUILD)/obj/tests/%.o,$(SIMT_SOURCES))
SIMT_CFLAGS   = -Itests -Itests/simt -DSIMT_CC='"$(CC)"' -DSIMT_CACHE='"$(BUILD)/simt"'

ifeq ($(SAN),thread)
TESTS := $(filter-out $(BUILD)/tests/simt/%,$(TESTS))
endif

$(BUILD)/obj/tests/simt/%.o: tests/simt/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(SIMT_CFLAGS) -c $< -o $@

# A kernel's test may use what ops/ uses: its plan, its key, the CPU reference.
$(BUILD)/tests/simt/test_%: tests/simt/test_%.c $(SIMT_OBJECTS) $(call libraries,ops $(USE_ops))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(SIMT_CFLAGS) $< -o $@ $(LDFLAGS) -rdynamic $(SIMT_OBJECTS) \
	    -Wl,--start-group $(call libraries,ops $(USE_ops)) -Wl,--end-group $(foreach d,ops $(USE_ops),$(LIBS_$(d))) $(LDLIBS)

# The same probes on a GPU and here, compared.
$(BUILD)/tests/gpu/gpu_common: tests/gpu/gpu_common.c $(SIMT_OBJECTS) $(call libraries,ops $(USE_ops))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(SIMT_CFLAGS) $< -o $@ $(LDFLAGS) -rdynamic $(SIMT_OBJECTS) \
	    -Wl,--start-group $(call libraries,ops $(USE_ops)) -Wl,--end-group $(foreach d,ops $(USE_ops),$(LIBS_$(d))) $(LDLIBS)

# The op cases of test_ops, on a GPU.
$(BUILD)/tests/gpu/gpu_ops: tests/gpu/gpu_ops.c $(foreach o,$(SIMT_OBJECTS),$(if $(findstring /op_cases,$(o)),$(o))) $(call libraries,ops $(USE_ops))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(SIMT_CFLAGS) $< -o $@ $(LDFLAGS) $(filter %.o,$^) \
	    -Wl,--start-group $(call libraries,ops $(USE_ops)) -Wl,--end-group $(foreach d,ops $(USE_ops),$(LIBS_$(d))) $(LDLIBS)

# Kernels on a GPU, measured; bench/gpu.sh runs it.
$(BUILD)/bench/gpu_ops: bench/gpu_ops.c bench/gpu_ops_table.c bench/gpu_ops.h $(call libraries,ops $(USE_ops))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(filter bench/%.c,$^) -o $@ $(LDFLAGS) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS)

# What bench/gpu.sh runs on a machine that has a GPU and NVRTC but perhaps no compiler.
.PHONY: gpu-programs
gpu-programs: $(BUILD)/tests/gpu/gpu_ops $(BUILD)/bench/gpu_ops $(BUILD)/tests/gpu/gpu_moe_sample
