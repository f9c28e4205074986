"""The methods: one async function a file, with what there is to say of it as the file's `ABOUT`."""
