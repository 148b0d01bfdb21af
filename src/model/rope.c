/* Rotary frequencies. Linear and dynamic NTK scaling as used by Hugging Face; yarn: Peng et al. 2023; longrope: Ding et
 * al. 2024; llama3: the frequency-dependent interpolation of the Llama 3.1 release. Sums are in float where the reference's are. */
#include <math.h>

static const double pi = 3.14159265358979323846;

#include "model/config.h"

bool rope_by_length(const struct rope_config *r) { return r->scaling == ROPE_DYNAMIC || r->scaling == ROPE_LONGROPE; }

static double yarn_mscale(double scale, double mscale) { return scale <= 1 ? 1 : 0.1 * mscale * log(scale) + 1; }

/* The dimension that turns `rotations` times over the original context. */
static double yarn_dim(const struct rope_config *r, double rotations, int32_t context)
{
    return r->rotary_dim * log(context / (rotations * 2 * pi)) / (2 * log(r->theta));
}

static void yarn(const struct rope_config *r, int32_t original, float *inv_freq)
{
    double low = yarn_dim(r, r->beta_fast, original), high = yarn_dim(r, r->beta_slow, original);
    if (r->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, r->rotary_dim - 1);
    if (low == high) high += 0.001;
    for (int i = 0; i < r->rotary_dim / 2; i++) {
        float ramp = fminf(fmaxf(((float)i - (float)low) / (float)(high - low), 0), 1);
        float keep = 1 - ramp;
        inv_freq[i] = inv_freq[i] / (float)r->factor * (1 - keep) + inv_freq[i] * keep;
    }
}

static void llama3(const struct rope_config *r, int32_t original, float *inv_freq)
{
    float factor = (float)r->factor, low = (float)r->low_freq_factor, spread = (float)(r->high_freq_factor - r->low_freq_factor);
    float low_wavelength = (float)(original / r->low_freq_factor), high_wavelength = (float)(original / r->high_freq_factor);
    for (int i = 0; i < r->rotary_dim / 2; i++) {
        float f = inv_freq[i], wavelength = (float)(2 * pi) / f;
        if (wavelength > low_wavelength) inv_freq[i] = f / factor;
        else if (wavelength >= high_wavelength) {
            float smooth = ((float)original / wavelength - low) / spread;
            inv_freq[i] = (1 - smooth) * f / factor + smooth * f;
        }
    }
}

/* The angles of a long context magnify every rounding, so the powers are rounded where the reference rounds them. */
void rope_inv_freq(const struct rope_config *r, int32_t context, int32_t length, float *inv_freq, float *scale)
{
    int32_t original = r->original_context ? r->original_context : context, half = r->rotary_dim / 2;
    double theta = r->theta;
    if (r->scaling == ROPE_DYNAMIC && length > context)
        theta *= pow(r->factor * length / context - (r->factor - 1), (double)r->rotary_dim / (r->rotary_dim - 2));
    const float *divisors = r->freq_factors;
    if (r->scaling == ROPE_LONGROPE) divisors = length > original ? r->long_factor : r->short_factor;
    for (int i = 0; i < half; i++) {
        float power = (float)pow(theta, (double)((float)(2 * i) / (float)r->rotary_dim));
        inv_freq[i] = 1 / (divisors ? divisors[i] * power : power);
    }
    *scale = 1;
    switch (r->scaling) {
    case ROPE_DEFAULT:
    case ROPE_DYNAMIC: break;
    case ROPE_LINEAR:
        for (int i = 0; i < half; i++) inv_freq[i] /= (float)r->factor;
        break;
    case ROPE_LLAMA3: llama3(r, original, inv_freq); break;
    case ROPE_YARN:
        yarn(r, original, inv_freq);
        *scale = (float)(r->attention_factor ? r->attention_factor
                         : r->mscale && r->mscale_all_dim
                             ? yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all_dim)
                             : yarn_mscale(r->factor, 1));
        break;
    case ROPE_LONGROPE:
        *scale = (float)(r->attention_factor ? r->attention_factor
                         : r->factor > 1     ? sqrt(1 + log(r->factor) / log(original))
                                             : 1);
        break;
    }
}
