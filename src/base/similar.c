#include "base/similar.h"

#include <math.h>
#include <string.h>

float similar(const char *how, const float *x, const float *y, int n)
{
    double dot = 0, xx = 0, yy = 0, gap = 0, steps = 0;
    for (int i = 0; i < n; i++) {
        double a = (double)x[i], b = (double)y[i];
        dot += a * b;
        xx += a * a;
        yy += b * b;
        gap += (a - b) * (a - b);
        steps += fabs(a - b);
    }
    if (how && !strcmp(how, "dot")) return (float)dot;
    if (how && !strcmp(how, "euclidean")) return (float)-sqrt(gap);
    if (how && !strcmp(how, "manhattan")) return (float)-steps;
    return xx > 0 && yy > 0 ? (float)(dot / sqrt(xx * yy)) : 0.0f;
}
