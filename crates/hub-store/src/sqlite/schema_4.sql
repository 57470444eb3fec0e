-- Authentication codes. Documents without a code get one when the hub starts; audit entries of earlier versions have none.
ALTER TABLE documents ADD COLUMN code BLOB;
ALTER TABLE audit ADD COLUMN code BLOB;
