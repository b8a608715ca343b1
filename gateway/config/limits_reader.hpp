#pragma once

#include <gateway/config/limits.hpp>
#include <gateway/config/reader.hpp>

namespace fencegate {

/// Returns a reader for the section `limits`.
config_reader::read_value limits_section(limits_config& target);

}  // namespace fencegate
