#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace fencegate::cli {

/// A script that teaches a shell the subcommands and options of `app`: `bash`, `zsh` or `fish`, no other.
std::string completion_script(const CLI::App& app, std::string_view shell);

}  // namespace fencegate::cli
