package cli

// completionScripts are the scripts by the names of the shells. What may come next only gus
// knows: they ask it, and hand on what it says.
var completionScripts = map[string]string{
	"bash": `# completion of gus for bash: see gus completion --help
_gus() {
	local line kind=
	COMPREPLY=()
	while IFS= read -r line; do
		if [[ -z $kind ]]; then
			kind=$line
		else
			COMPREPLY+=("$line")
		fi
	done < <("${COMP_WORDS[0]/#\~/$HOME}" completion line -- "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
	if [[ $kind == files && $2 == @* ]]; then
		while IFS= read -r line; do
			COMPREPLY+=("@$line")
		done < <(compgen -f -- "${2#@}")
		compopt -o filenames 2>/dev/null
	elif [[ $kind == files ]]; then
		compopt -o default 2>/dev/null
	fi
}
complete -F _gus gus
`,
	"zsh": `#compdef gus
# completion of gus for zsh: see gus completion --help
_gus() {
	local -a found
	found=("${(@f)$("${~words[1]}" completion words -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
	case ${found[1]} in
	files)
		compset -P '*[@=]'
		_files
		;;
	words) compadd -- "${(@)found[2,-1]}" ;;
	esac
}
if [[ ${funcstack[1]} == _gus ]]; then
	_gus "$@"
else
	compdef _gus gus
fi
`,
	"fish": `# completion of gus for fish: see gus completion --help
function __gus_complete
	set -l words (commandline -opc) (commandline -ct)
	set -l gus (string replace -r '^~' $HOME -- $words[1])
	set -l found ($gus completion words -- $words[2..-1] 2>/dev/null)
	if test "$found[1]" = files
		__fish_complete_path (string replace -r '^.*[@=]' '' -- $words[-1])
	else
		string join \n -- $found[2..-1]
	end
end
complete -c gus -f -a '(__gus_complete)'
`,
}
