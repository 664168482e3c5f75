#include "coreml/runtime/surface_pool.h"

namespace pd {
namespace {

constexpr size_t kMostFreeSets = 2;

}  // namespace

SurfacePool::Lease::~Lease() {
  for (Surface* surface : locked_) surface->Unlock();
  pool_->Return(std::move(set_));
}

std::map<std::string, Surface*> SurfacePool::Lease::Offers() const {
  std::map<std::string, Surface*> offers;
  for (const auto& [name, surface] : set_) offers[name] = surface.get();
  return offers;
}

const F16* SurfacePool::Lease::Lock(const std::string& result) {
  Surface* surface = set_.at(result).get();
  const F16* data = surface->Lock();
  if (data) locked_.push_back(surface);
  return data;
}

std::shared_ptr<SurfacePool::Lease> SurfacePool::Take() {
  Set set;
  {
    const std::lock_guard guard(mutex_);
    if (!free_.empty()) {
      set = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (set.empty())
    for (const auto& [name, shape] : results_)
      if (auto surface = core_ml_.MakeSurface(shape)) set[name] = std::move(surface);
  for (auto it = set.begin(); it != set.end();)  // a surface that cannot be written is unusable
    it = it->second->FillWithNan() ? std::next(it) : set.erase(it);
  return std::make_shared<Lease>(shared_from_this(), std::move(set));
}

void SurfacePool::Trim() {
  std::vector<Set> free;
  const std::lock_guard guard(mutex_);
  free.swap(free_);
}

void SurfacePool::Return(Set set) {
  const std::lock_guard guard(mutex_);
  if (!set.empty() && free_.size() < kMostFreeSets) free_.push_back(std::move(set));
}

}  // namespace pd
