#include "power/meter_kinds.h"

#include <iterator>

namespace pd {

std::vector<std::shared_ptr<PowerMeter>> OpenPowerMeters(const std::string& powercap) {
  PowerMeters meters = OpenRapl(powercap);
  for (PowerMeters found : {OpenNvml(), OpenIoReport("/usr/lib/libIOReport.dylib")})
    std::ranges::move(found, std::back_inserter(meters));
  return meters;
}

}  // namespace pd
