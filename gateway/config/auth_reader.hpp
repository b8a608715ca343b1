#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/config/reader.hpp>

#include <filesystem>

namespace fencegate::config_reader {

/// Returns a reader for the section `auth`. The bounds are those of the docstrings in auth.hpp.
///
/// In: relative file names start at `folder`.
read_value auth_section(auth_config& target, const std::filesystem::path& folder);

}  // namespace fencegate::config_reader
