// A weight as a file holds it: where its bytes lie and how to read a row of it in canonical order.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/weights.h"

namespace pd {

// Of an affine type: value = scale * code + bias, rounded once per operation in float.
struct AffineScales {
  int group = 0;             // neighbours of a row that share a scale and a bias: a multiple of 32
  DType type = DType::kF32;  // of both: kF32, kF16, kBF16
  std::span<const std::byte> scales, biases;  // [rows, columns / group]
};

// Where rows lie when not one after the other. In bytes.
struct RowLayout {
  int64_t matrix = 0;  // from one matrix of a stack to the next
  int64_t row = 0;     // from one row of a matrix to the next
  int64_t column = 0;  // from one value of a row to the next; 0: they lie together, in blocks of the type
};

// A view; `owner` keeps the bytes alive. Any thread may read.
struct TensorView {
  std::string name;  // in the file, for messages
  DType type = DType::kF32;
  Shape
      shape;  // [rows, columns]; [n]: one row of n values; [stack, rows, columns]: matrices one after another
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  // GGUF stores the Q and K rows of the Llama family with rotation pairs side by side. Canonical is the
  // half-split order of Hugging Face. Not 0: rows come as this many heads, each with its pairs interleaved;
  // Row() undoes it.
  int interleaved_heads = 0;
  bool mapped = false;                                // the bytes lie in a MappedFile
  std::optional<AffineScales> affine = std::nullopt;  // of an affine type
  std::optional<RowLayout> layout = std::nullopt;     // absent: rows follow one another

  int64_t rows() const;  // of all matrices of a stack
  int64_t columns() const { return shape.empty() ? 0 : shape.back(); }
  size_t row_bytes() const { return RowBytes(type, columns()); }
  // Whether a row's bytes lie together, so that Row can point to them.
  bool has_whole_rows() const { return !layout || layout->column == 0; }
  // Canonical row r: row_bytes() bytes, any alignment. Only with has_whole_rows().
  const std::byte* Row(int64_t r) const;
  // The same bytes copied to `out`, from any layout.
  void CopyRow(int64_t r, std::byte* out) const;
  size_t stored_bytes() const;  // with scales and biases
  // Canonical row r as floats; out has columns() entries.
  void ReadRow(int64_t r, std::span<float> out) const;
  // Of an affine type: the scales and biases of row r, columns() / affine->group of each.
  std::vector<float> ReadScales(int64_t r) const;
  std::vector<float> ReadBiases(int64_t r) const;
  std::vector<float> ReadAll() const;  // rows() * columns() floats
  // Says that the bytes are not read again soon: those of a mapped file leave the process's memory.
  void Forget() const;

  // ---- views of parts, for tensors that files fuse ----

  // Rows [first, first + count) of a matrix, or of each matrix of a stack.
  TensorView RowRange(int64_t first, int64_t count) const;
  // Rows `first`, `first` + step, ... of a matrix, or of each of a stack. Not of affine types.
  TensorView EveryRow(int64_t first, int64_t step) const;
  // Of a plain type, stored as [columns, rows] (each matrix of a stack): the matrix itself.
  TensorView Transposed() const;

 private:
  std::vector<float> ReadGroups(std::span<const std::byte> all, int64_t r) const;
  RowLayout Layout() const;
  const std::byte* RowBegin(int64_t r) const;
};

// `gain` + 1 as an f32 vector of its own: for norms whose files hold the gain minus one.
TensorView WithOneAdded(const TensorView& gain);

// Tells base models, fine-tunes and quantisations apart: covers every tensor's name, type, shape and bytes.
uint64_t WeightsDigest(const ModelSpec& spec, const Weights<TensorView>& tensors);

}  // namespace pd
