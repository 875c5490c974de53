// Vectors: base64 of float32 values, softmax, mixes and cosines.

// (layers, tokens, dim) ─▶ [layer][token] = Float32Array
export function decode(text, [layers, tokens, dim]) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const values = new Float32Array(bytes.buffer);
  return Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: tokens }, (_, token) => {
      const start = (layer * tokens + token) * dim;
      return values.subarray(start, start + dim);
    }));
}

export function softmax(raw) {
  const powers = raw.map((value) => Math.exp(value - Math.max(...raw)));
  const total = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / total);
}

// gamma · Σ weights[j] · layers[j]
export function mixed(layers, weights, gamma) {
  return layers[0].map((_, k) => gamma * layers.reduce((sum, layer, j) => sum + weights[j] * layer[k], 0));
}

export function length(vector) {
  return Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
}

export function cosine(a, b) {
  const norms = length(a) * length(b);
  return norms > 0 ? a.reduce((sum, value, k) => sum + value * b[k], 0) / norms : 0;
}
