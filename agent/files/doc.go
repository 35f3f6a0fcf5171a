// Package files makes files of keys, and keys of files.
//
// A Pull keeps the files of a directory as the keys below a prefix are: it runs in
// `gus sync pull` and, any number of times, in the agent. A Push writes the files of a directory
// to keys, once. Both speak to an agent through package client, as any program may.
//
// # How a Pull works
//
//	watch (names, versions) -> dirty keys -> wait for more, 0.1 to 1 s
//	    -> read each value, compare with the file, write what differs beside it
//	    -> Check -> rename all -> remove -> Exec -> tell the state
//
// The watch carries no values: of a value that changes a thousand times in a
// second one is read, what could not be written is read again when it is tried again, and what
// is in memory is names, versions, and eight values. All that follows is one goroutine, a batch
// at a time. A change that comes meanwhile waits in the watch, folded by key, so the last one lands.
// Of a key older versions do not count, but for the first that a new watch tells: a site that was put back has what it has.
//
// # What holds for files
//
//   - At each moment a file is whole, the old one or the new one: a new one is written beside its place, synced,
//     and renamed. A single file that is mounted by itself (rename says EBUSY) is written in place: who reads
//     it at that moment may see a part.
//   - A file is written where its bytes differ, and never else. The mode and the owner of the one that it replaces stay; where
//     the owner cannot be kept it is an error, and the old file stays. New files have mode 0644, new directories 0755, whatever the
//     umask. A file that should be private is made once, with its mode, by hand. ACLs and other attributes are not kept.
//   - Files change when a key does, or at the start: what somebody edits by hand stays so until that file's key changes, or the job
//     starts. What somebody removes comes back with the next batch, whatever that changes: before each one, directories whose
//     times have changed are read, and once a minute all.
//   - Nothing is known, nothing is done: no file is touched before the watch has told all keys that the site
//     knows, and the site has heard of all changes: one without a quorum, or an observer that hears nobody, may know what was
//     long ago. No template is rendered before; without an agent everything stays. Once and DryRun wait for that as long as Ask says.
//   - With Delete, what goes is what this job has put in place or found there with the key's very bytes, as a journal says
//     (.gus-sync in the directory), and only where a deletion was told or, where the site merely does not
//     know the key, a quorum says that it is not there: a site whose disk was wiped knows little for a while.
//     What a job of another prefix has put there, or one with templates where this one has none or the
//     other way round, is not this job's: it stays.
//   - With Delete, a file whose key is deleted gives way to a directory that another key needs, and a directory that this job
//     has made, with nothing in it but such files, to a file, in one batch: what goes is removed just before what comes is put in place. A crash in
//     between leaves neither; the next start goes on from there.
//   - Symbolic links below the directory are neither followed nor replaced. The directory itself may be one.
//   - A key that cannot be a file (.., an absolute path, an empty name, names over 255 bytes, names that begin with .gus-) is
//     an error with its name, as are both of a pair that cannot be beside each other: a key a and a key a/b, and, on a
//     file system that does not tell cases apart, two names that differ in case alone. What of such a pair is in place stays.
//     Everything else goes on.
//   - A crash leaves .gus-tmp-* files and .gus-check-* directories at most, which the next start removes.
//
// # Check and Exec
//
// Both are run by /bin/sh -c, with GUS_PREFIX and GUS_DIR (the directory's path). Check runs in GUS_STAGE, a directory within the
// other one that holds all that it will hold: links to what stays, and what changes. It must not write there. Where it fails, all of
// the batch waits, and is tried again when a key changes, and from time to time. It costs a link for each file there, each time.
//
// Exec runs in the directory, once for each batch that has changed a file. A line of the journal says before the first
// rename that it is owed, and another one, after it has succeeded, that it is not: so it runs again after a failure, 1 s later and up to 5 minutes
// later after further ones, and at the next start after a crash. It may run once too often, never too seldom. Why not the
// versions that it has seen? Because it is about files, and the one thing to be remembered is whether it is owed.
//
// A command that takes longer than its timeout is ended with its process group: SIGTERM, and SIGKILL 2 s later.
//
// # Templates
//
// With Template, the value of a key that ends with .tmpl is a text/template of the standard library, and the file's name lacks the ending:
//
//	{{ key "app/port" }}        the value of any key; it is an error where there is none
//	{{ range keys "peers/" }}   the keys below a prefix, whole names in order
//	{{ site }}                  this site's name
//	{{ env "HOME" }}            a variable of the process that renders; it is an error where it is not set
//
// It is rendered again when a key changes that it has read, wherever that is. An error keeps the old file and names key and line. One
// that renders to nothing but white space is an error too: an empty file is more often a mistake than wanted, and a key without .tmpl can be empty.
//
// # One job for a directory
//
// A job locks its directory. Another one for the same writes nothing and reports nothing, since its row may be that of the
// first; it tries again until the first has ended, or, with EndIfTaken, ends with ErrTaken.
//
// Nor may one be within another: a job does not start in a directory that has a journal in one above it. One that
// finds a journal in a directory below its own says so once, and neither looks nor writes in there, nor removes anything: also Check does
// not see it. Keys that would be files there are errors with their names.
//
// # Versions
//
// State.Version is the sum, modulo 2^64, of the first 64 bits of SHA-256 over key, version, and for a template the
// keys and versions that it has read, of all keys in place: the same wherever the same is in place. A key that could not be put in
// place counts with the version that is there, if this process knows it.
//
// # What a Push takes
//
// All regular files below the directory. It leaves out this program's own (.gus-*), .git, and what editors leave (*~, .*.swp,
// .#*, #*#), and says so. A symbolic link, a device, a file over 1 MiB, a name that cannot be a key are errors before the first write.
package files
