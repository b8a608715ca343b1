#include <gateway/cli/completion.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace fencegate::cli {
namespace {

struct option {
    std::vector<std::string> names;  ///< With their dashes.
    std::string help;
    bool takes_value = false;
    bool takes_file = false;
    bool takes_resource = false;
    std::vector<std::string> choices;
};

struct subcommand {
    std::string name;
    std::string help;
    std::vector<option> options;
    std::vector<std::string> words;  ///< Values of a positional argument.
    bool takes_resource = false;     ///< A positional argument is a resource; the command has a program after `--`.
};

/// Lists the resources that begin with the text that follows; silent and quick when no gateway answers.
const std::string list_command = "fencegate resources --timeout 2s --prefix ";

/// Returns the values of a CLI11 type name: a and b of `TEXT:{a,b}`.
std::vector<std::string> parse_choices(const std::string& type) {
    const auto open = type.find('{');
    const auto close = type.find('}', open == std::string::npos ? 0 : open);
    std::vector<std::string> out;
    if (open == std::string::npos || close == std::string::npos) return out;
    return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

option describe(const CLI::Option& source) {
    option out;
    for (const auto& name : source.get_snames())
        out.names.push_back("-" + name);
    for (const auto& name : source.get_lnames())
        out.names.push_back("--" + name);
    out.help = source.get_description();
    out.takes_value = source.get_items_expected_max() > 0;
    const std::string type = source.get_type_name();
    out.takes_file = type.find("FILE") != std::string::npos || type.find("DIR") != std::string::npos;
    out.takes_resource = out.names.back() == "--resource" || out.names.back() == "--prefix";
    out.choices = parse_choices(type);
    return out;
}

std::vector<subcommand> describe(const CLI::App& app) {
    std::vector<subcommand> out;
    for (const CLI::App* source : app.get_subcommands([](const CLI::App*) { return true; })) {
        subcommand described{source->get_name(), source->get_description(), {}, {}, {}};
        for (const CLI::Option* option : source->get_options()) {
            if (option->get_positional()) {
                const auto words = parse_choices(option->get_type_name());
                described.words.insert(described.words.end(), words.begin(), words.end());
                described.takes_resource = source->get_name() == "lock" || source->get_name() == "elect";
            } else {
                described.options.push_back(describe(*option));
            }
        }
        out.push_back(std::move(described));
    }
    return out;
}

std::string join_words(const std::vector<std::string>& words, std::string_view separator = " ") {
    std::string out;
    for (const auto& word : words) {
        if (!out.empty()) out += separator;
        out += word;
    }
    return out;
}

/// Puts a text into single quotes, for any of the three shells; escapes the characters of `special` with a backslash.
std::string quote(std::string_view text, std::string_view special = "") {
    std::string out = "'";
    for (const char c : text) {
        if (special.find(c) != std::string_view::npos) out += '\\';
        if (c == '\'')
            out += "'\\''";
        else
            out += c;
    }
    return out + "'";
}

std::string bash_script(const std::vector<subcommand>& subcommands) {
    std::string names, values, words;
    for (const auto& command : subcommands) {
        std::vector<std::string> offered;
        for (const auto& option : command.options) {
            offered.insert(offered.end(), option.names.begin(), option.names.end());
            if (!option.takes_value) continue;
            for (const auto& name : option.names) {
                values += "    '" + command.name + " " + name + "') ";
                if (option.takes_file) values += "compopt -o default; ";
                if (option.takes_resource) values += "_fencegate_resources; ";
                if (!option.choices.empty())
                    values += "COMPREPLY=($(compgen -W " + quote(join_words(option.choices)) + " -- \"$cur\")); ";
                values += "return ;;\n";
            }
        }
        names += (names.empty() ? "" : " ") + command.name;
        words += "    " + command.name + ") words=" + quote(join_words(offered)) +
                 "; plain=" + quote(join_words(command.words)) + (command.takes_resource ? "; resources=1" : "") +
                 " ;;\n";
    }
    return R"(# bash completion of fencegate: source it, or save it in a directory that bash-completion reads.
# Bash splits words at : and @ too, so the whole word is taken from the line, and only its last part is replaced.
# It inserts names as they are, so only those that need no quotes are offered.
_fencegate_resources() {
  local word=${COMP_LINE:0:COMP_POINT} name quoted
  word=${word##* }
  while IFS= read -r name; do
    printf -v quoted %q "$name"
    if [[ $quoted == "$name" ]]; then COMPREPLY+=("$name"); fi
  done < <()" +
           list_command + R"("$word" 2> /dev/null)
  COMPREPLY=("${COMPREPLY[@]#"${word%"$cur"}"}")
}
_fencegate() {
  local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
  local words plain resources i
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W ')" +
           names + R"( --help --version' -- "$cur"))
    return
  fi
  if [[ $command == lock || $command == elect ]]; then
    for ((i = 2; i < COMP_CWORD; i++)); do
      if [[ ${COMP_WORDS[i]} == -- ]]; then
        if ((i + 1 == COMP_CWORD)); then COMPREPLY=($(compgen -c -- "$cur")); else compopt -o default; fi
        return
      fi
    done
  fi
  case "$command $before" in
)" + values +
           R"(  esac
  case "$command" in
)" + words +
           R"(  esac
  if [[ $cur == -* ]]; then plain=$words; elif [[ $resources ]]; then _fencegate_resources; return; fi
  COMPREPLY=($(compgen -W "$plain" -- "$cur"))
}
complete -F _fencegate fencegate
)";
}

std::string zsh_script(const std::vector<subcommand>& subcommands) {
    std::string names, cases;
    for (const auto& command : subcommands) {
        names += "    " + quote(command.name + ":" + command.help) + "\n";
        cases += "    " + command.name + ")";
        // The words after -- are a command line of their own.
        if (command.takes_resource)
            cases +=
                " local mark=${words[(i)--]}\n      if ((mark < CURRENT)); then\n        shift $mark words\n        "
                "((CURRENT -= mark))\n        _normal\n        return\n      fi\n     ";
        cases += " _arguments";
        for (const auto& option : command.options) {
            for (const auto& name : option.names) {
                std::string value;
                if (option.takes_value)
                    value = option.takes_file       ? ":file:_files"
                            : option.takes_resource ? ":resource:_fencegate_resources"
                                                    : ":value:(" + join_words(option.choices) + ")";
                // An unescaped bracket in the help text would end it.
                cases += " \\\n      " + quote(name + "[") + quote(option.help, "[]:\\") + quote("]" + value);
            }
        }
        if (!command.words.empty()) cases += " \\\n      ':word:(" + join_words(command.words) + ")'";
        if (command.takes_resource) cases += " \\\n      '*:resource:_fencegate_resources'";
        cases += " ;;\n";
    }
    // Not named `commands`: zsh has a parameter of that name, which lists all executables.
    return "#compdef fencegate\n# zsh completion of fencegate: save it as _fencegate in a directory of "
           "$fpath.\n_fencegate_resources() {\n  local -a names\n  names=(${(f)\"$(" +
           list_command +
           "\"$PREFIX\" 2> /dev/null)\"})\n  compadd -a names\n}\n_fencegate() {\n"
           "  local -a subcommands=(\n" +
           names +
           "  )\n  if ((CURRENT == 2)); then\n    _describe subcommand subcommands\n    return\n  fi\n  local "
           "subcommand=$words[2]\n"
           "  shift words\n  ((CURRENT--))\n  case $subcommand in\n" +
           cases +
           "  esac\n}\nif [[ $funcstack[1] == _fencegate ]]; then _fencegate \"$@\"; else compdef _fencegate "
           "fencegate; fi\n";
}

std::string fish_script(const std::vector<subcommand>& subcommands) {
    std::string out =
        "# fish completion of fencegate: save it as ~/.config/fish/completions/fencegate.fish.\n"
        "# The words after -- are a command line of their own.\n"
        "function __fencegate_command\n"
        "  set -l words (commandline -opc)\n"
        "  set -l mark (contains -i -- -- $words); or return\n"
        "  set -e words[1..$mark]\n"
        "  complete -C (string join ' ' -- $words (commandline -ct))\n"
        "end\n"
        "complete -c fencegate -f\n"
        "function __fencegate_resources\n  " +
        list_command +
        "(commandline -ct) 2> /dev/null\nend\n"
        "complete -c fencegate -n '__fish_seen_subcommand_from lock elect; and contains -- -- (commandline -opc)' -a "
        "'(__fencegate_command)'\n"
        "complete -c fencegate -n '__fish_seen_subcommand_from lock elect; and not contains -- -- (commandline -opc)' "
        "-a '(__fencegate_resources)'\n";
    for (const auto& command : subcommands) {
        out += "complete -c fencegate -n __fish_use_subcommand -a " + command.name + " -d " +
               quote(command.help, "\\") + "\n";
        const std::string condition =
            "complete -c fencegate -n " + quote("__fish_seen_subcommand_from " + command.name);
        for (const auto& option : command.options) {
            out += condition;
            for (const auto& name : option.names)
                out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
            if (option.takes_file) out += " -F";
            if (option.takes_value) out += " -r";
            if (option.takes_resource) out += " -a '(__fencegate_resources)'";
            if (!option.choices.empty()) out += " -a " + quote(join_words(option.choices));
            out += " -d " + quote(option.help, "\\") + "\n";
        }
        if (!command.words.empty()) out += condition + " -a " + quote(join_words(command.words)) + "\n";
    }
    return out;
}

}  // namespace

std::string completion_script(const CLI::App& app, std::string_view shell) {
    const auto subcommands = describe(app);
    if (shell == "zsh") return zsh_script(subcommands);
    return shell == "fish" ? fish_script(subcommands) : bash_script(subcommands);
}

}  // namespace fencegate::cli
