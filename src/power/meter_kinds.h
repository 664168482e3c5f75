// A factory for each kind of meter, behind OpenPowerMeters. Empty where the system has no such meter.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "power/power_meter.h"

namespace pd {

using PowerMeters = std::vector<std::shared_ptr<PowerMeter>>;

PowerMeters OpenRapl(const std::string& powercap);
PowerMeters OpenNvml();
// `library`: the path of Apple's private library IOReport, which needs no privileges.
PowerMeters OpenIoReport(const std::string& library);

}  // namespace pd
