# The CPU harness for device code and the tests that use it. Kernels are compiled by the test program itself (simt_build.c)
# into SIMT_CACHE, one object a constant set, by SIMT_CC and without sanitizers: builds may share them. The harness stands in for the thread
# sanitizer's runtime, so it does not exist in a SAN=thread build.
SIMT_SOURCES := $(filter-out tests/simt/test_%,$(sort $(wildcard tests/simt/*.c)))
SIMT_OBJECTS := $(patsubst tests/%.c,$(BUILD)/obj/tests/%.o,$(SIMT_SOURCES))
SIMT_CC      ?= $(CC)
SIMT_CACHE   ?= $(BUILD)/simt
SIMT_CFLAGS   = -Itests -Itests/simt -DSIMT_CC='"$(SIMT_CC)"' $(if $(findstring clang,$(SIMT_CC)),-DSIMT_CC_CLANG) -DSIMT_CACHE='"$(SIMT_CACHE)"' $(NVRTC_CFLAGS)
# What NVRTC compiles is kept there: several tests want the same kernels, and so do the tests of a build with sanitizers
# (scripts/check names one place for all its builds).
NVRTC_CACHE  ?= $(SIMT_ABSOLUTE)/nvrtc-cache
NVRTC_CFLAGS  = -DNVRTC_CACHE='"$(NVRTC_CACHE)"'

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

$(BUILD)/bench/gpu_fp8: bench/gpu_fp8.c $(call libraries,ops $(USE_ops))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $< -o $@ $(LDFLAGS) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS)

# What bench/gpu.sh runs on a machine that has a GPU and NVRTC but perhaps no compiler.
.PHONY: gpu-programs
gpu-programs: $(BUILD)/rose $(BUILD)/tests/gpu/gpu_ops $(BUILD)/tests/gpu/gpu_matmul $(BUILD)/bench/gpu_matmul $(BUILD)/bench/gpu_fp8 $(BUILD)/bench/gpu_ops $(BUILD)/tests/gpu/gpu_moe_sample $(BUILD)/tests/gpu/gpu_moe

# The stand-in for libcuda and libnvrtc (tests/simt/driver/driver.h): any test may name it as its driver. Built without
# sanitizers: it switches stacks, and its kernels know nothing of them.
SIMT_DRIVER_SOURCES := $(sort $(wildcard tests/simt/driver/*.c)) $(filter tests/simt/simt_%,$(SIMT_SOURCES))
# SIMT_DRIVER_BUILD: another build whose drivers, and the kernels that they have compiled, serve here too (scripts/check).
SIMT_DRIVER_BUILD ?= $(BUILD)
SIMT_DRIVERS := $(SIMT_DRIVER_BUILD)/tests/simt/libsimt_fast.so $(SIMT_DRIVER_BUILD)/tests/simt/libsimt_checked.so
SIMT_DRIVER_CFLAGS = $(filter-out -fsanitize% -fno-sanitize% -fno-omit-frame-pointer -DROSE_GUARD,$(CFLAGS)) $(SIMT_CFLAGS) -Itests/simt/driver -DSIMT_ROOT='"$(CURDIR)"'
SIMT_ABSOLUTE = $(if $(filter /%,$(BUILD)),$(BUILD),$(CURDIR)/$(BUILD))
$(BUILD)/obj/simt_fast/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(SIMT_DRIVER_CFLAGS) -USIMT_CC -DSIMT_CC='"$(CC)"' -USIMT_CACHE -DSIMT_CACHE='"$(SIMT_ABSOLUTE)/simt"' -c $< -o $@
$(BUILD)/obj/simt_checked/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(SIMT_DRIVER_CFLAGS) -USIMT_CC -DSIMT_CC='"$(CC)"' -USIMT_CACHE -DSIMT_CACHE='"$(SIMT_ABSOLUTE)/simt"' -DSIMT_DRIVER_CHECKED -c $< -o $@
$(BUILD)/tests/simt/libsimt_fast.so: $(patsubst %.c,$(BUILD)/obj/simt_fast/%.o,$(SIMT_DRIVER_SOURCES))
$(BUILD)/tests/simt/libsimt_checked.so: $(patsubst %.c,$(BUILD)/obj/simt_checked/%.o,$(SIMT_DRIVER_SOURCES))
$(BUILD)/tests/simt/libsimt_fast.so $(BUILD)/tests/simt/libsimt_checked.so:
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^ -Wl,-z,nodelete $(LDLIBS)
.PHONY: simt-driver
simt-driver: $(SIMT_DRIVERS)

# Tests that run on it: they find it as SIMT_DRIVER_DIR "/libsimt_fast.so". A folder, a test of it, objects it needs beside.
SIMT_CASES := $(foreach o,$(SIMT_OBJECTS),$(if $(findstring /op_cases,$(o)),$(o)))
define simt_driver_test
$(BUILD)/tests/$(1)/$(2): tests/$(1)/$(2).c $(call libraries,$(1) $(USE_$(1))) $(3) $(SIMT_DRIVERS)
	@mkdir -p $$(@D)
	$$(CC) $$(CPPFLAGS) -Itests -Itests/simt -DSIMT_DRIVER_DIR='"$(abspath $(SIMT_DRIVER_BUILD))/tests/simt"' $(NVRTC_CFLAGS) $$(CFLAGS) $$< -o $$@ $$(LDFLAGS) $(3) \
	    -Wl,--start-group $(call libraries,$(1) $(USE_$(1))) -Wl,--end-group $$(foreach d,$(1) $(USE_$(1)),$$(LIBS_$$(d))) $$(LDLIBS)
ifeq ($(SAN),thread)
TESTS := $$(filter-out $(BUILD)/tests/$(1)/$(2),$$(TESTS))
endif
endef
$(eval $(call simt_driver_test,ops,test_simt_driver,$(SIMT_CASES)))
$(eval $(call simt_driver_test,ops,test_moe_cuda,))
$(eval $(call simt_driver_test,ops,test_library_cuda,))
$(eval $(call simt_driver_test,ops,test_matmul_cuda,))
$(eval $(call simt_driver_test,model,test_golden_cuda,))
$(eval $(call simt_driver_test,model,test_golden_f16,))
$(eval $(call simt_driver_test,model,test_golden_fp8,))
$(eval $(call simt_driver_test,model,test_golden_blocks,))
$(eval $(call simt_driver_test,engine,test_engine_cuda,))
$(eval $(call simt_driver_test,api,test_kernels,))
$(eval $(call simt_driver_test,api,test_bench_op,))
$(eval $(call simt_driver_test,api,test_kernels_nvrtc,$(SIMT_CASES)))
$(eval $(call simt_driver_test,engine,test_pool_cuda,))
