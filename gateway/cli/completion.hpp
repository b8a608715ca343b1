#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace fencegate::cli {

/// Returns a script that completes the subcommands and options of `app` in a shell: `bash`, `zsh` or `fish`.
std::string completion_script(const CLI::App& app, std::string_view shell);

}  // namespace fencegate::cli
