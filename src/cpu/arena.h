// Activations of a step: float matrices that are recycled, not freed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace pd::cpu {

class Arena;

// Floats [rows, channels], row-major. Rows start on cache lines and have room for whole tiles of 32 channels;
// the part past `channels` is unspecified. Returns its memory to the arena, which must outlive it. Move-only.
class Matrix {
 public:
  Matrix() = default;
  ~Matrix();
  Matrix(Matrix&& other) noexcept { *this = std::move(other); }
  Matrix& operator=(Matrix&& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(buffer_, other.buffer_);
    std::swap(data_, other.data_);
    std::swap(rows_, other.rows_);
    std::swap(channels_, other.channels_);
    return *this;
  }

  int rows() const { return rows_; }
  int channels() const { return channels_; }
  int64_t stride() const { return Stride(channels_); }  // floats from row to row
  float* Row(int64_t r) { return data_ + r * stride(); }
  const float* Row(int64_t r) const { return data_ + r * stride(); }

  static int64_t Stride(int64_t channels) { return (channels + 31) / 32 * 32; }

 private:
  friend class Arena;
  Arena* arena_ = nullptr;
  size_t buffer_ = 0;  // index in the arena
  float* data_ = nullptr;
  int rows_ = 0, channels_ = 0;
};

// Owned by a backend, used by its thread. Allocates only while it warms up: a step with no more rows than an
// earlier one finds every buffer that it needs.
class Arena {
 public:
  // Call before a step. Sizes are powers of two, so that a growing batch does not allocate at every size.
  void BeginStep(int rows) {
    const int rounded = RoundRows(rows);
    if (rounded <= largest_) return;
    largest_ = rounded;
    if (std::none_of(buffers_.begin(), buffers_.end(), [](const Buffer& b) { return b.used; }))
      buffers_.clear();
  }

  Matrix Take(int rows, int channels) {
    const size_t floats = size_t(RoundRows(rows)) * size_t(Matrix::Stride(channels));
    size_t best = buffers_.size();
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const Buffer& b = buffers_[i];
      if (!b.used && b.floats >= floats && (best == buffers_.size() || b.floats < buffers_[best].floats))
        best = i;
    }
    if (best == buffers_.size()) buffers_.push_back({Memory(new (kLine) float[floats]), floats});
    buffers_[best].used = true;
    Matrix m;
    m.arena_ = this, m.buffer_ = best, m.data_ = buffers_[best].memory.get();
    m.rows_ = rows, m.channels_ = channels;
    return m;
  }

 private:
  friend class Matrix;
  static constexpr std::align_val_t kLine{64};
  struct Delete {
    void operator()(float* p) const { ::operator delete[](p, kLine); }
  };
  using Memory = std::unique_ptr<float[], Delete>;
  struct Buffer {
    Memory memory;
    size_t floats = 0;
    bool used = false;
  };
  static int RoundRows(int rows) {
    int rounded = 8;
    while (rounded < rows) rounded *= 2;
    return rounded;
  }

  std::vector<Buffer> buffers_;
  int largest_ = 0;
};

inline Matrix::~Matrix() {
  if (arena_) arena_->buffers_[buffer_].used = false;
}

}  // namespace pd::cpu
