// Memory for the results of a function, used again when nobody reads it any more.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coreml/runtime/core_ml.h"

namespace pd {

// One surface for each result; results without one (there was no memory) are copied. Two sets are enough for
// one to be filled while the other is read; more are made while readers are slower, and given back. Leases
// may end on any thread, and after the pool.
class SurfacePool : public std::enable_shared_from_this<SurfacePool> {
 public:
  using Set = std::map<std::string, std::unique_ptr<Surface>>;

  // Of one prediction. Locked for reading from Lock until the lease ends.
  class Lease {
   public:
    Lease(std::shared_ptr<SurfacePool> pool, Set set) : pool_(std::move(pool)), set_(std::move(set)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();
    std::map<std::string, Surface*> Offers() const;
    // The memory of a result that lies in its surface; nullptr when it cannot be read.
    const F16* Lock(const std::string& result);
    const Surface& at(const std::string& result) const { return *set_.at(result); }

   private:
    std::shared_ptr<SurfacePool> pool_;
    Set set_;
    std::vector<Surface*> locked_;
  };

  // `core_ml` must outlive the pool, not its leases.
  SurfacePool(CoreMl& core_ml, std::map<std::string, mil::Dims> results)
      : core_ml_(core_ml), results_(std::move(results)) {}

  // Every value in it is a NaN: what a prediction leaves unwritten is seen, not taken for a result.
  std::shared_ptr<Lease> Take();
  void Trim();  // gives back the memory that nobody uses

 private:
  void Return(Set set);

  CoreMl& core_ml_;
  std::map<std::string, mil::Dims> results_;  // shapes
  std::mutex mutex_;
  std::vector<Set> free_;
};

}  // namespace pd
