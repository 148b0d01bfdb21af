# The driver that tests/device/test_cuda.c loads instead of NVIDIA's.
$(BUILD)/tests/device/fake_cuda.so: tests/device/fake_cuda.c tests/device/fake_cuda.h src/device/cuda_api.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/device $(CFLAGS) -shared $< -o $@ $(filter-out $(GUARD),$(LDFLAGS))
$(BUILD)/tests/device/test_cuda: $(BUILD)/tests/device/fake_cuda.so

# The cuBLASLt of tests/device/test_cuda_blas.c.
$(BUILD)/tests/device/fake_blas.so: tests/device/fake_blas.c tests/device/fake_blas.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/device $(CFLAGS) -shared $< -o $@ $(filter-out $(GUARD),$(LDFLAGS))
$(BUILD)/tests/device/test_cuda_blas: $(BUILD)/tests/device/fake_cuda.so $(BUILD)/tests/device/fake_blas.so
