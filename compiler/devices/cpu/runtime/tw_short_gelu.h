/* Gelu for results that are rounded to bf16: four fifths of the operations of x / 2 (1 + tw_erf_bf16(x sqrt(1/2))). */
#pragma once

/* Off by 2e-4 at most: x (1/2 + t (1/8 + (t^2 - 16) Q(t^2))), t = x within [-4, 4]; Q by least squares reweighted towards the largest
 * error. The bracket is 1 from 4 on, and 0 from -4 down. */
TW_INLINE vf tw_gelu_bf16(vf x) {
    vf t = tw_min_of(tw_splat(4.0f), tw_max_of(tw_splat(-4.0f), x));
    vf s = t * t;
    vf q = tw_splat(2.25881977e-8f);
    q = q * s + -1.22741544e-6f;
    q = q * s + 2.81252295e-5f;
    q = q * s + -3.62183710e-4f;
    q = q * s + 2.96875125e-3f;
    q = q * s + -1.70543916e-2f;
    return x * (t * ((s - 16.0f) * q + 0.125f) + 0.5f);
}
