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
    std::vector<std::string> choices;
};

struct subcommand {
    std::string name;
    std::string help;
    std::vector<option> options;
    std::vector<std::string> words;  ///< That may stand where no option does.
};

/// `TEXT:{a,b}` gives a and b.
std::vector<std::string> choices_of(const std::string& type) {
    const auto open = type.find('{');
    const auto close = type.find('}', open == std::string::npos ? 0 : open);
    std::vector<std::string> out;
    if (open == std::string::npos || close == std::string::npos) return out;
    return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

option describe(const CLI::Option& from) {
    option out;
    for (const auto& name : from.get_snames())
        out.names.push_back("-" + name);
    for (const auto& name : from.get_lnames())
        out.names.push_back("--" + name);
    out.help = from.get_description();
    out.takes_value = from.get_items_expected_max() > 0;
    const std::string type = from.get_type_name();
    out.takes_file = type.find("FILE") != std::string::npos || type.find("DIR") != std::string::npos;
    out.choices = choices_of(type);
    return out;
}

std::vector<subcommand> describe(const CLI::App& app) {
    std::vector<subcommand> out;
    for (const CLI::App* from : app.get_subcommands([](const CLI::App*) { return true; })) {
        subcommand one{from->get_name(), from->get_description(), {}, {}};
        for (const CLI::Option* o : from->get_options()) {
            if (o->get_positional()) {
                const auto words = choices_of(o->get_type_name());
                one.words.insert(one.words.end(), words.begin(), words.end());
            } else {
                one.options.push_back(describe(*o));
            }
        }
        out.push_back(std::move(one));
    }
    return out;
}

std::string join(const std::vector<std::string>& words, std::string_view between = " ") {
    std::string out;
    for (const auto& word : words) {
        if (!out.empty()) out += between;
        out += word;
    }
    return out;
}

/// In single quotes, for any of the three; the characters of `special` with a backslash before them.
std::string in_quotes(std::string_view text, std::string_view special = "") {
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

std::string bash_script(const std::vector<subcommand>& all) {
    std::string names, values, words;
    for (const auto& one : all) {
        std::vector<std::string> offered;
        for (const auto& option : one.options) {
            offered.insert(offered.end(), option.names.begin(), option.names.end());
            if (!option.takes_value) continue;
            for (const auto& name : option.names) {
                values += "    '" + one.name + " " + name + "') ";
                if (option.takes_file) values += "compopt -o default; ";
                if (!option.choices.empty())
                    values += "COMPREPLY=($(compgen -W " + in_quotes(join(option.choices)) + " -- \"$cur\")); ";
                values += "return ;;\n";
            }
        }
        names += (names.empty() ? "" : " ") + one.name;
        words += "    " + one.name + ") words=" + in_quotes(join(offered)) + "; plain=" + in_quotes(join(one.words)) +
                 " ;;\n";
    }
    return R"(# bash completion of fencegate: source it, or put it where bash-completion looks.
_fencegate() {
  local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words plain i
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W ')" +
           names + R"( --help --version' -- "$cur"))
    return
  fi
  if [[ $command == lock ]]; then
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
  if [[ $cur == -* ]]; then plain=$words; fi
  COMPREPLY=($(compgen -W "$plain" -- "$cur"))
}
complete -F _fencegate fencegate
)";
}

std::string zsh_script(const std::vector<subcommand>& all) {
    std::string names, cases;
    for (const auto& one : all) {
        names += "    " + in_quotes(one.name + ":" + one.help) + "\n";
        cases += "    " + one.name + ")";
        // What follows -- is a command line of its own.
        if (one.name == "lock")
            cases +=
                " local mark=${words[(i)--]}\n      if ((mark < CURRENT)); then\n        shift $mark words\n        "
                "((CURRENT -= mark))\n        _normal\n        return\n      fi\n     ";
        cases += " _arguments";
        for (const auto& option : one.options) {
            for (const auto& name : option.names) {
                std::string value;
                if (option.takes_value)
                    value = option.takes_file ? ":file:_files" : ":value:(" + join(option.choices) + ")";
                // A bracket within the help would end it.
                cases +=
                    " \\\n      " + in_quotes(name + "[") + in_quotes(option.help, "[]:\\") + in_quotes("]" + value);
            }
        }
        if (!one.words.empty()) cases += " \\\n      ':word:(" + join(one.words) + ")'";
        if (one.name == "lock") cases += " \\\n      '*:resource:()'";
        cases += " ;;\n";
    }
    // Not `commands`: that is the shell's own, of all that can be run.
    return "#compdef fencegate\n# zsh completion of fencegate: save it as _fencegate in a folder of "
           "$fpath.\n_fencegate() {\n"
           "  local -a subcommands=(\n" +
           names +
           "  )\n  if ((CURRENT == 2)); then\n    _describe subcommand subcommands\n    return\n  fi\n  local "
           "subcommand=$words[2]\n"
           "  shift words\n  ((CURRENT--))\n  case $subcommand in\n" +
           cases +
           "  esac\n}\nif [[ $funcstack[1] == _fencegate ]]; then _fencegate \"$@\"; else compdef _fencegate "
           "fencegate; fi\n";
}

std::string fish_script(const std::vector<subcommand>& all) {
    std::string out =
        "# fish completion of fencegate: save it as ~/.config/fish/completions/fencegate.fish.\n"
        "# What follows -- is a command line of its own.\n"
        "function __fencegate_command\n"
        "  set -l words (commandline -opc)\n"
        "  set -l mark (contains -i -- -- $words); or return\n"
        "  set -e words[1..$mark]\n"
        "  complete -C (string join ' ' -- $words (commandline -ct))\n"
        "end\n"
        "complete -c fencegate -f\n"
        "complete -c fencegate -n '__fish_seen_subcommand_from lock; and contains -- -- (commandline -opc)' -a "
        "'(__fencegate_command)'\n";
    for (const auto& one : all) {
        out +=
            "complete -c fencegate -n __fish_use_subcommand -a " + one.name + " -d " + in_quotes(one.help, "\\") + "\n";
        const std::string within = "complete -c fencegate -n " + in_quotes("__fish_seen_subcommand_from " + one.name);
        for (const auto& option : one.options) {
            out += within;
            for (const auto& name : option.names)
                out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
            if (option.takes_file) out += " -F";
            if (option.takes_value) out += " -r";
            if (!option.choices.empty()) out += " -a " + in_quotes(join(option.choices));
            out += " -d " + in_quotes(option.help, "\\") + "\n";
        }
        if (!one.words.empty()) out += within + " -a " + in_quotes(join(one.words)) + "\n";
    }
    return out;
}

}  // namespace

std::string completion_script(const CLI::App& app, std::string_view shell) {
    const auto all = describe(app);
    if (shell == "zsh") return zsh_script(all);
    return shell == "fish" ? fish_script(all) : bash_script(all);
}

}  // namespace fencegate::cli
