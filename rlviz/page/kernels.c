// What train.js spends its time in, for WebAssembly with SIMD; `python -m rlviz.page.kernels` makes kernels.wasm of it.
// The same operations in plain JavaScript stand in train.js. exp is our own, so that every browser draws the same tokens.

typedef float f4 __attribute__((vector_size(16), aligned(4)));
enum { BLOCK = 256, DIMS = 5 };
static float panel[BLOCK * 8];

static inline float exponential(float of) {
  float x = of < -87.0f ? -87.0f : of > 88.0f ? 88.0f : of;
  float n = x * 1.44269504f + 12582912.0f; // rounds to a whole number: the sum has no room for a fraction
  n -= 12582912.0f;
  float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f, y = y * r + 8.3334519073e-3f, y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f, y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  union { int i; float f; } power = {.i = ((int)n + 127) << 23};
  return of < -87.0f ? 0.0f : of > 88.0f ? __builtin_inff() : y * power.f;
}

// the natural logarithm of a positive number
static float logarithm(float x) {
  if (!(x < __builtin_inff())) return x; // infinity, or no number
  union { float f; int i; } u = {.f = x};
  int e = ((u.i >> 23) & 255) - 126;
  u.i = (u.i & 0x7fffff) | 0x3f000000;
  float m = u.f;
  if (m < 0.707106781f) m += m, e -= 1;
  m -= 1.0f;
  float z = m * m, y = 7.0376836292e-2f;
  y = y * m - 1.1514610310e-1f, y = y * m + 1.1676998740e-1f, y = y * m - 1.2420140846e-1f;
  y = y * m + 1.4249322787e-1f, y = y * m - 1.6668057665e-1f, y = y * m + 2.0000714765e-1f;
  y = y * m - 2.4999993993e-1f, y = y * m + 3.3333331174e-1f;
  return m + (y * m * z - 2.12194440e-4f * e - 0.5f * z) + 0.693359375f * e;
}

// c = a · b for each of `count` pairs of matrices: rows and columns of a and b stand ra, ca, rb, cb apart, the pairs sa, sb;
// c [count, M, N] is contiguous. Blocks of 4 × 8 are held in registers, over a panel of b that is laid out anew.
__attribute__((export_name("mm"))) void mm(
    const float *a, int ra, int ca, int sa, const float *b, int rb, int cb, int sb, float *c, int M, int K, int N, int count) {
  for (; count--; a += sa, b += sb, c += M * N) {
    for (int j = 0; j < N; j += 8) {
      int columns = N - j < 8 ? N - j : 8;
      for (int from = 0; from < K; from += BLOCK) {
        int depth = K - from < BLOCK ? K - from : BLOCK;
        for (int k = 0; k < depth; k++) {
          const float *row = b + (from + k) * rb + j * cb;
          f4 *to = (f4 *)(panel + 8 * k);
          if (columns == 8 && cb == 1) to[0] = *(const f4 *)row, to[1] = *(const f4 *)(row + 4);
          else for (int n = 0; n < 8; n++) panel[8 * k + n] = n < columns ? row[n * cb] : 0;
        }
        for (int i = 0; i < M; i += 4) {
          int rows = M - i < 4 ? M - i : 4;
          const float *a0 = a + i * ra + from * ca, *a1 = rows > 1 ? a0 + ra : a0;
          const float *a2 = rows > 2 ? a1 + ra : a0, *a3 = rows > 3 ? a2 + ra : a0;
          f4 x0 = {0}, y0 = {0}, x1 = {0}, y1 = {0}, x2 = {0}, y2 = {0}, x3 = {0}, y3 = {0};
          for (int k = 0, at = 0; k < depth; k++, at += ca) {
            f4 u = *(const f4 *)(panel + 8 * k), v = *(const f4 *)(panel + 8 * k + 4);
            x0 += a0[at] * u, y0 += a0[at] * v, x1 += a1[at] * u, y1 += a1[at] * v;
            x2 += a2[at] * u, y2 += a2[at] * v, x3 += a3[at] * u, y3 += a3[at] * v;
          }
          f4 made[8] = {x0, y0, x1, y1, x2, y2, x3, y3};
          for (int r = 0; r < rows; r++) {
            float *to = c + (i + r) * N + j;
            if (columns == 8) {
              if (from) made[2 * r] += *(f4 *)to, made[2 * r + 1] += *(f4 *)(to + 4);
              *(f4 *)to = made[2 * r], *(f4 *)(to + 4) = made[2 * r + 1];
            } else {
              const float *own = (const float *)(made + 2 * r);
              for (int n = 0; n < columns; n++) to[n] = (from ? to[n] : 0) + own[n];
            }
          }
        }
      }
    }
  }
}

#define LOOP(RESULT) \
  if (p == 1 && q == 1) for (int i = 0; i < n; i++) { float x = a[i], y = b[i]; out[i] = RESULT; } \
  else if (p == 1 && q == 0) { float y = b[0]; for (int i = 0; i < n; i++) { float x = a[i]; out[i] = RESULT; } } \
  else if (p == 0 && q == 1) { float x = a[0]; for (int i = 0; i < n; i++) { float y = b[i]; out[i] = RESULT; } } \
  else for (int i = 0; i < n; i++) { float x = a[i * p], y = b[i * q]; out[i] = RESULT; } \
  break;

static void line(int op, float *restrict out, const float *restrict a, int p, const float *restrict b, int q, int n) {
  switch (op) {
    case 0: LOOP(x)
    case 1: LOOP(x + y)
    case 2: LOOP(x - y)
    case 3: LOOP(x * y)
    case 4: LOOP(x / y)
    case 5: LOOP(x > y ? y : x)
    case 6: LOOP(-x)
    case 7: LOOP(exponential(x))
    case 8: LOOP(1.0f / (1.0f + exponential(-x)))
    case 9: LOOP(__builtin_sqrtf(x))
    case 10: LOOP(1.0f / __builtin_sqrtf(x))
    case 11: LOOP(x * x * x)
  }
}

// out = op(a, b), element by element. plan: sizes, then strides of out, a and b, DIMS each; the last stride of out is 1.
__attribute__((export_name("each"))) void each(int op, float *out, const float *a, const float *b, const int *plan) {
  const int *d = plan, *o = plan + DIMS, *s = plan + 2 * DIMS, *t = plan + 3 * DIMS;
  for (int i = 0; i < d[0]; i++) for (int j = 0; j < d[1]; j++) for (int k = 0; k < d[2]; k++) for (int l = 0; l < d[3]; l++)
    line(op, out + i * o[0] + j * o[1] + k * o[2] + l * o[3], a + i * s[0] + j * s[1] + k * s[2] + l * s[3], s[4],
         b + i * t[0] + j * t[1] + k * t[2] + l * t[3], t[4], d[4]);
}

// out = factor · Σ a over the last three of the plan's dims; out is contiguous over the two before.
__attribute__((export_name("sum"))) void sum(float *out, const float *a, const int *d, float factor) {
  const int *s = d + 2 * DIMS;
  for (int i = 0; i < d[0]; i++) for (int j = 0; j < d[1]; j++) {
    const float *from = a + i * s[0] + j * s[1];
    double total = 0; // of pieces: a long sum of floats would lose its last digits
    for (int k = 0; k < d[2]; k++) for (int l = 0; l < d[3]; l++) for (int m = 0; m < d[4]; m += BLOCK) {
#pragma clang fp reassociate(on)
      const float *row = from + k * s[2] + l * s[3] + m * s[4];
      int n = d[4] - m < BLOCK ? d[4] - m : BLOCK;
      float piece = 0;
      if (s[4] == 1) for (int i = 0; i < n; i++) piece += row[i];
      else for (int i = 0; i < n; i++) piece += row[i * s[4]];
      total += piece;
    }
    *out++ = (float)(total * factor);
  }
}

// softmax of rows, or its logarithm
__attribute__((export_name("softmax"))) void softmax(float *out, const float *a, int rows, int n, int logs) {
  for (; rows--; a += n, out += n) {
    float most = a[0], total = 0;
    for (int i = 1; i < n; i++) most = a[i] > most ? a[i] : most;
    for (int i = 0; i < n; i++) out[i] = exponential(a[i] - most);
    for (int i = 0; i < n; i++) total += out[i];
    if (logs) { float less = most + logarithm(total); for (int i = 0; i < n; i++) out[i] = a[i] - less; }
    else { float share = 1.0f / total; for (int i = 0; i < n; i++) out[i] *= share; }
  }
}
