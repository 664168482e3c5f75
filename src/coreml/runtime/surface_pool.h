// Memory for a function's results, reused once nobody reads it.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coreml/runtime/core_ml.h"

namespace pd {

// One surface per result; results without one (no memory) are copied. Two sets are enough to fill one while
// the other is read; if readers are slower, more are made and later freed. Leases may end on any thread, and
// after the pool.
class SurfacePool : public std::enable_shared_from_this<SurfacePool> {
 public:
  using Set = std::map<std::string, std::unique_ptr<Surface>>;

  // The set of one prediction. Locked for reading from Lock until the lease ends.
  class Lease {
   public:
    Lease(std::shared_ptr<SurfacePool> pool, Set set) : pool_(std::move(pool)), set_(std::move(set)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();
    std::map<std::string, Surface*> Offers() const;
    // The memory of a result in its surface; nullptr if it cannot be read.
    const F16* Lock(const std::string& result);
    const Surface& at(const std::string& result) const { return *set_.at(result); }

   private:
    std::shared_ptr<SurfacePool> pool_;
    Set set_;
    std::vector<Surface*> locked_;
  };

  // `core_ml` must outlive the pool, but not its leases.
  SurfacePool(CoreMl& core_ml, std::map<std::string, mil::Dims> results)
      : core_ml_(core_ml), results_(std::move(results)) {}

  // Every value is NaN: what a prediction leaves unwritten is noticed, not taken for a result.
  std::shared_ptr<Lease> Take();
  void Trim();  // frees unused memory

 private:
  void Return(Set set);

  CoreMl& core_ml_;
  std::map<std::string, mil::Dims> results_;  // shapes
  std::mutex mutex_;
  std::vector<Set> free_;
};

}  // namespace pd
