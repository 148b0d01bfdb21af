# Whole models on a GPU: what tests/model may use.
$(BUILD)/tests/gpu/gpu_golden: tests/gpu/gpu_golden.c $(call libraries,model $(USE_model))
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -Itests/model $(CFLAGS) $< -o $@ $(LDFLAGS) -Wl,--start-group $(call libraries,model $(USE_model)) -Wl,--end-group $(LDLIBS)
gpu-programs: $(BUILD)/tests/gpu/gpu_golden
