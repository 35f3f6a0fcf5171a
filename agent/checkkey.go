package agent

// CheckKey says why a user may not write key, if so: an ErrRefused or ErrTooLarge of
// package client, as the agent itself would answer.
func CheckKey(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return checkWritable(key)
}
