#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace fencegate::cli {

/// Returns a script that completes a command line in a shell, `bash`, `zsh` or `fish`, by `fencegate __complete`.
std::string_view completion_script(std::string_view shell);

/// Prints what may stand in place of the last word: each in a line, with its help after a tab; or `:file` alone, for
/// the name of a file.
///
/// In: `words` the command line from its second word up to the cursor; the last word may be empty. `list_resources`
///     prints the resources that begin with a text.
void print_completions(const CLI::App& app, const std::vector<std::string>& words,
                       const std::function<void(const std::string&)>& list_resources);

}  // namespace fencegate::cli
