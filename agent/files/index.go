package files

import "strings"

// index knows which names of files keys stand for, and which of them cannot be
// beside each other: two keys of one file, and a file where another key needs a directory.
type index struct {
	fold bool                // names that differ in case alone are one
	keys map[string]string   // a key for each name
	more map[string][]string // all keys of a name that has several
	dirs map[string]below    // what is below each directory
}

// below is what is below a directory.
type below struct {
	names int
	key   string // one of them, where it is known
}

func newIndex(fold bool) *index {
	return &index{fold: fold, keys: map[string]string{}, more: map[string][]string{}, dirs: map[string]below{}}
}

func (x *index) id(name string) string { return foldName(name, x.fold) }

// foldName returns what names have in common that are one file where cases are not told apart.
func foldName(name string, fold bool) string {
	if fold {
		return strings.ToLower(name)
	}
	return name
}

// holds says whether a key stands for name.
func (x *index) holds(name string) bool { return x.keys[x.id(name)] != "" }

// add has key stand for name, and returns the keys that may be in conflict now.
func (x *index) add(name, key string) (touched []string) {
	id := x.id(name)
	if other := x.keys[id]; other != "" {
		if x.more[id] == nil {
			x.more[id] = []string{other}
		}
		x.more[id] = append(x.more[id], key)
		return x.more[id]
	}
	x.keys[id] = key
	for dir := range parents(id) {
		d := x.dirs[dir]
		x.dirs[dir] = below{d.names + 1, key}
		touched = append(touched, x.of(dir)...)
	}
	if x.dirs[id].names > 0 {
		touched = append(touched, x.under(id)...)
	}
	return touched
}

// remove undoes an add, and returns the keys that may be without a conflict now.
func (x *index) remove(name, key string) (touched []string) {
	id := x.id(name)
	if all := x.more[id]; all != nil {
		var rest []string
		for _, k := range all {
			if k != key {
				rest = append(rest, k)
			}
		}
		x.keys[id], x.more[id] = rest[0], rest
		if len(rest) == 1 {
			delete(x.more, id)
		}
		return rest
	}
	delete(x.keys, id)
	for dir := range parents(id) {
		d := x.dirs[dir]
		if d.names--; d.key == key {
			d.key = ""
		}
		if x.dirs[dir] = d; d.names == 0 {
			delete(x.dirs, dir)
			touched = append(touched, x.of(dir)...)
		}
	}
	if x.dirs[id].names > 0 {
		touched = append(touched, x.under(id)...)
	}
	return touched
}

// of returns the keys of id.
func (x *index) of(id string) []string {
	if all := x.more[id]; all != nil {
		return all
	}
	if key := x.keys[id]; key != "" {
		return []string{key}
	}
	return nil
}

// under returns the keys below the directory id.
func (x *index) under(id string) (all []string) {
	for other := range x.keys {
		if strings.HasPrefix(other, id+"/") {
			all = append(all, x.of(other)...)
		}
	}
	return all
}

// conflict says why key cannot become name, or returns "".
func (x *index) conflict(name, key string) string {
	id := x.id(name)
	for _, other := range x.more[id] {
		if other != key {
			return "it and the key \"" + other + "\" would be the same file: delete one of the two"
		}
	}
	if d := x.dirs[id]; d.names > 0 {
		if d.key == "" {
			return "it would be a file where other keys need a directory: delete it, or those below it"
		}
		return "it would be a file where the key \"" + d.key + "\" needs a directory: delete one of the two"
	}
	for dir := range parents(id) {
		if other := x.keys[dir]; other != "" {
			return "it needs a directory where the key \"" + other + "\" would be a file: delete one of the two"
		}
	}
	return ""
}
