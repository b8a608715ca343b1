#include <gateway/cli/completion.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>

namespace fencegate::cli {
namespace {

constexpr std::string_view bash_script =
    R"(# bash completion of fencegate: source it, or save it in a directory that bash-completion reads.
# Bash splits words at : and @ too, so the words are taken from the line, and only the last part of one is replaced.
# It inserts names as they are, so only those that need no quotes are offered.
_fencegate() {
  local cur=${COMP_WORDS[COMP_CWORD]} line=${COMP_LINE:0:COMP_POINT} words last name quoted i
  read -ra words <<< "$line"
  if [[ $line == *[[:blank:]] ]]; then words+=(""); fi
  last=$((${#words[@]} - 1))
  COMPREPLY=()
  for ((i = 1; i < last; i++)); do  # The words after -- are a command line of their own.
    if [[ ${words[i]} == -- ]]; then
      if ((i + 1 == last)); then COMPREPLY=($(compgen -c -- "$cur")); else compopt -o default; fi
      return
    fi
  done
  while IFS=$'\t' read -r name _; do
    if [[ $name == :file ]]; then compopt -o default; return; fi
    printf -v quoted %q "$name"
    if [[ $quoted == "$name" ]]; then COMPREPLY+=("$name"); fi
  done < <(fencegate __complete "${words[@]:1}" 2> /dev/null)
  COMPREPLY=("${COMPREPLY[@]#"${words[last]%"$cur"}"}")
}
complete -F _fencegate fencegate
)";

constexpr std::string_view zsh_script =
    R"script(#compdef fencegate
# zsh completion of fencegate: save it as _fencegate in a directory of $fpath.
_fencegate() {
  local mark=${words[(i)--]} line
  if ((mark < CURRENT)); then  # The words after -- are a command line of their own.
    shift $mark words
    ((CURRENT -= mark))
    _normal
    return
  fi
  local -a names lines
  for line in ${(f)"$(fencegate __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2> /dev/null)"}; do
    if [[ $line == :file ]]; then _files; return; fi
    names+=("${line%%$'\t'*}")
    lines+=("${line/$'\t'/  -- }")
  done
  compadd -l -d lines -a names
}
if [[ $funcstack[1] == _fencegate ]]; then _fencegate "$@"; else compdef _fencegate fencegate; fi
)script";

constexpr std::string_view fish_script =
    R"(# fish completion of fencegate: save it as ~/.config/fish/completions/fencegate.fish.
function __fencegate_complete
  set -l words (commandline -opc)
  set -l begun (commandline -ct)
  set -l mark (contains -i -- -- $words)
  if test -n "$mark"  # The words after -- are a command line of their own.
    set -e words[1..$mark]
    complete -C (string join ' ' -- $words $begun)
    return
  end
  set -e words[1]
  set -l offered (fencegate __complete $words "$begun" 2> /dev/null)
  if test "$offered" = :file
    __fish_complete_path $begun
  else
    string join \n -- $offered
  end
end
complete -c fencegate -f -a '(__fencegate_complete)'
)";

/// Prints the words that begin with `begun`.
class offer {
  public:
    explicit offer(const std::string& begun) : begun_(begun) {}

    void word(const std::string& text, const std::string& help = {}) const {
        if (text.starts_with(begun_)) std::cout << text << (help.empty() ? "" : "\t" + help) << "\n";
    }
    void options(const CLI::App& command) const {
        for (const CLI::Option* option : command.get_options()) {
            for (const auto& name : option->get_snames())
                word("-" + name, option->get_description());
            for (const auto& name : option->get_lnames())
                word("--" + name, option->get_description());
        }
    }
    /// Prints a and b of the type `TEXT:{a,b}`.
    void choices(const std::string& type) const {
        const auto open = type.find('{');
        const auto close = type.find('}', open == std::string::npos ? 0 : open);
        if (open == std::string::npos || close == std::string::npos) return;
        for (const auto& choice : CLI::detail::split(type.substr(open + 1, close - open - 1), ','))
            word(choice);
    }

  private:
    const std::string& begun_;
};

}  // namespace

std::string_view completion_script(std::string_view shell) {
    if (shell == "zsh") return zsh_script;
    return shell == "fish" ? fish_script : bash_script;
}

void print_completions(const CLI::App& app, const std::vector<std::string>& words,
                       const std::function<void(const std::string&)>& list_resources) {
    if (words.empty()) return;
    const std::string& begun = words.back();
    const offer offered(begun);
    const auto commands = app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
    if (words.size() == 1) {
        for (const CLI::App* command : commands)
            offered.word(command->get_name(), command->get_description());
        return offered.options(app);
    }
    const auto command =
        std::ranges::find(commands, words.front(), [](const CLI::App* each) { return each->get_name(); });
    if (command == commands.end()) return;
    const CLI::Option* const before = (*command)->get_option_no_throw(words[words.size() - 2]);
    if (before != nullptr && before->nonpositional() && before->get_items_expected_max() > 0) {
        const std::string type = before->get_type_name();  // of the option's value, which is to be completed
        if (type.find("FILE") != std::string::npos || type.find("DIR") != std::string::npos) std::cout << ":file\n";
        if (before->check_lname("resource") || before->check_lname("prefix") || before->check_lname("with-shared"))
            list_resources(begun);
        return offered.choices(type);
    }
    if (begun.starts_with('-')) return offered.options(**command);
    for (const CLI::Option* positional : (*command)->get_options(&CLI::Option::get_positional))
        offered.choices(positional->get_type_name());
    if ((*command)->get_name() == "lock" || (*command)->get_name() == "elect") list_resources(begun);
}

}  // namespace fencegate::cli
