# Whole models on a GPU: what tests/model and tests/engine may use.
$(BUILD)/tests/gpu/gpu_golden: tests/gpu/gpu_golden.c $(call libraries,engine $(USE_engine))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -Itests/model $(CFLAGS) $< -o $@ $(LDFLAGS) -Wl,--start-group $(call libraries,engine $(USE_engine)) -Wl,--end-group $(foreach d,$(USE_engine),$(LIBS_$(d))) $(LDLIBS)
gpu-programs: $(BUILD)/tests/gpu/gpu_golden

# Where a decode step's time goes.
$(BUILD)/bench/gpu_step: bench/gpu_step.c $(call libraries,engine $(USE_engine))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $< -o $@ $(LDFLAGS) -Wl,--start-group $(call libraries,engine $(USE_engine)) -Wl,--end-group $(foreach d,$(USE_engine),$(LIBS_$(d))) $(LDLIBS)
gpu-programs: $(BUILD)/bench/gpu_step

# Models of real shapes: the GPU beside the CPU.
$(BUILD)/tests/gpu/gpu_large: tests/gpu/gpu_large.c $(call libraries,engine $(USE_engine))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $< -o $@ $(LDFLAGS) -Wl,--start-group $(call libraries,engine $(USE_engine)) -Wl,--end-group $(foreach d,$(USE_engine),$(LIBS_$(d))) $(LDLIBS)
gpu-programs: $(BUILD)/tests/gpu/gpu_large

# The engine's tests.
$(BUILD)/tests/gpu/gpu_engine: tests/gpu/gpu_engine.c tests/engine/test_engine_cuda.c tests/engine/test_engine.c $(call libraries,engine $(USE_engine))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -Itests/engine $(CFLAGS) $< -o $@ $(LDFLAGS) -Wl,--start-group $(call libraries,engine $(USE_engine)) -Wl,--end-group $(foreach d,$(USE_engine),$(LIBS_$(d))) $(LDLIBS)
gpu-programs: $(BUILD)/tests/gpu/gpu_engine
