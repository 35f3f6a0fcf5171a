package sim
import ("testing";"os")
func TestDevBuild(t *testing.T){ b := buildBroken(t); data,_ := os.ReadFile(b); os.WriteFile("/tmp/gus/broken.test", data, 0o755) }
